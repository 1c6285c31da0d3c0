"""Does a model behave as a Bayes filter of its order? Five checks and a verdict.

Four vote, by p-values: prior, calibration and martingale against chance, exchangeability against a
size that matters. Convergence is a measurement. `power` says how small a departure they could see.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from posteer.banks.checks.convergence import ConvergenceCheck, check_convergence
from posteer.banks.checks.exchangeability import ExchangeabilityCheck, check_exchangeability
from posteer.banks.checks.martingale import MartingaleCheck, check_martingale
from posteer.banks.checks.power import Power, power_of
from posteer.banks.checks.prior import PriorCheck, check_prior
from posteer.banks.checks.ranks import RankCheck, check_ranks
from posteer.banks.checks.reference import reference
from posteer.banks.checks.statistics import bonferroni
from posteer.banks.drawn import LatentBank, open_bank
from posteer.banks.probes import require_laws
from posteer.core import Progress, require
from posteer.core.device import undisturbed
from posteer.models.protocol import Model
from posteer.models.registry import open_metered

ALARM = 0.01
"""Chance that a model that *is* a Bayes filter is told it is not, over all checks together."""


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """How much to ask of the model; `effort` multiplies numbers, not lengths.

    Calibration observes few tokens: after many, the data drown a wrong prior.
    """

    effort: float = 1.0
    length: int = 128
    observed: int = 4
    future: int = 48
    draws: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            0 < self.effort <= 1e3,
            f"effort {self.effort}: must be positive and finite, at most 1000",
        )

    @property
    def rollouts(self) -> int:
        return max(32, round(256 * self.effort))

    @property
    def simulations(self) -> int:
        return max(32, round(128 * self.effort))


@dataclass(frozen=True, kw_only=True)
class FilterReport:
    """What the checks found. `prior` and `ranks` need a known process and are None without one.

    A p-value says whether a deviation is beyond chance; the figures beside it say whether it is
    large enough to matter, which for a trained model is the better question.
    """

    model: str
    order: int
    prior: PriorCheck | None
    ranks: RankCheck | None
    martingale: MartingaleCheck
    exchangeability: ExchangeabilityCheck
    convergence: ConvergenceCheck | None
    power: Power

    @property
    def p_values(self) -> dict[str, float]:
        checks = {
            "prior": self.prior,
            "ranks": self.ranks,
            "martingale": self.martingale,
            "exchangeability": self.exchangeability,
        }
        return {name: check.p_value for name, check in checks.items() if check is not None}

    @property
    def alarms(self) -> list[str]:
        """The checks that raise the alarm, at `ALARM` over all of them."""
        values = self.p_values
        return [name for name, p in values.items() if not p * len(values) >= ALARM]

    @property
    def verdict(self) -> str:
        """In words, a key of the report's JSON."""
        bad = self.alarms
        swaps = self.exchangeability.verdict
        if not bad:
            return f"no deviation from a Bayes filter of order {self.order} beyond chance; {swaps}"
        return f"deviates from a Bayes filter of order {self.order}: {', '.join(bad)}; {swaps}"

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "p_values": self.p_values,
            "p_value": bonferroni(list(self.p_values.values())),
            "verdict": self.verdict,
        }


@undisturbed()
def check_filter(
    model: Model | Any,
    bank: LatentBank | Any,
    settings: CheckSettings | None = None,
    progress: Progress | None = None,
    *,
    device: Any = "auto",
) -> FilterReport:
    """Run every check that applies to this model and its bank, each by name or as an object.

    >>> from posteer.banks import sample
    >>> bank = sample("exact:beta-bernoulli", rollouts=64, length=64)
    >>> report = check_filter("exact:beta-bernoulli", bank, CheckSettings(effort=0.1))
    >>> sorted(report.p_values)
    ['exchangeability', 'martingale', 'prior', 'ranks']
    """
    given = settings or CheckSettings()
    model, bank = open_metered(model, device), open_bank(bank)
    require(bank.counts is not None, "this bank was not drawn by rollouts: nothing to check")
    require(
        bank.names(model),
        f"the bank was drawn from {bank.origin.model}, not from {model.name}: nothing to compare",
    )
    require_laws(bank.probe, model, bank.origin.context, "nothing to compare")
    prior_law, seed = model.prior, given.seed
    longest = model.max_length
    length = given.length if longest is None else min(given.length, longest - model.order)
    require(
        length > 2 * model.order + 8,
        f"{model.name} reads too few tokens ({longest}) to be checked",
    )

    def say(what: str, step: int) -> None:
        if progress is not None:
            progress(what, step, 5)

    say("checking the prior", 0)
    exact = None if prior_law is None else reference(prior_law, bank, seed)
    prior = None if exact is None else check_prior(bank, exact)
    convergence = check_convergence(bank, exact, seed)
    say("checking the martingale", 1)
    martingale = check_martingale(
        model,
        rollouts=given.rollouts,
        length=length,
        seed=seed,
        independent_rows=bool(getattr(prior_law, "independent_rows", False)),
    )
    say("swapping blocks", 2)
    swaps = check_exchangeability(model, rollouts=given.rollouts, length=length, seed=seed)
    ranks = None
    if prior_law is not None:
        say("simulating calibration", 3)
        observed = max(given.observed, model.order)
        ranks = check_ranks(
            model,
            prior_law,
            simulations=given.simulations,
            draws=given.draws,
            observed=observed,
            future=given.future if longest is None else min(given.future, longest - observed),
            seed=seed,
        )
    say("done", 5)
    posterior = None if prior_law is None else prior_law.after(bank.origin.context)
    voting = 2 if prior_law is None else 4
    return FilterReport(
        model=model.name,
        order=model.order,
        prior=prior,
        ranks=ranks,
        martingale=martingale,
        exchangeability=swaps,
        convergence=convergence,
        power=power_of(posterior, prior, ranks, martingale, swaps, ALARM / voting),
    )
