"""Does a model behave as a Bayes filter of its order? Five checks and a verdict.

Four vote, by p-values: prior, calibration and martingale against chance, exchangeability against a
size that matters. Convergence is a measurement. `power` says how small a departure they could see.
`departure` says how far a model that is no declared filter is from one. These are for Markov
latents. For any, `families` says which family explains the rollouts best, and
`atoms` how surely they are told apart where the prior is finite; that votes where `prior` cannot.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.banks.checks.atoms import AtomCheck, check_atoms
from posteer.banks.checks.convergence import ConvergenceCheck, check_convergence
from posteer.banks.checks.departure import Departure, check_departure
from posteer.banks.checks.exchangeability import ExchangeabilityCheck, check_exchangeability
from posteer.banks.checks.families import ROLLOUTS, FamilyCheck, check_families
from posteer.banks.checks.martingale import MartingaleCheck, check_martingale
from posteer.banks.checks.power import Power, power_of
from posteer.banks.checks.prior import PriorCheck, check_prior
from posteer.banks.checks.ranks import RankCheck, check_ranks
from posteer.banks.checks.reference import reference
from posteer.banks.checks.statistics import bonferroni
from posteer.banks.checks.tracing import trace
from posteer.banks.drawn import LatentBank, open_bank
from posteer.banks.probes import require_laws
from posteer.core import require
from posteer.core.device import undisturbed
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Int
from posteer.core.showing import Shown, Watch, watched
from posteer.families.atoms.classified import classified_by
from posteer.families.markov.family import MarkovFamily
from posteer.families.protocol import FinitePrior, Prior
from posteer.models.meter import Metered
from posteer.models.protocol import Model
from posteer.models.registry import open_metered

ALARM = 0.01
"""Chance that a model that *is* a Bayes filter is told it is not, over all checks together."""

LEAST_ROLLOUTS = 33
"""That families are compared on: with fewer, as at the least effort, their halves tell nothing."""


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """How much to ask of the model; `effort` multiplies numbers, not lengths. With `families`, all
    of them are fitted to rollouts, which takes longest.

    Calibration observes few tokens: after many, the data drown a wrong prior.
    """

    effort: float = 1.0
    length: int = 128
    observed: int = 4
    future: int = 48
    draws: int = 15
    seed: int = 0
    families: bool = True

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
class FilterReport(Shown):
    """What the checks found. `prior` and `ranks` need a known process and are None without one;
    `order` and what is counted are of Markov latents, and None of others.

    A p-value says whether a deviation is beyond chance; the figures beside it say whether it is
    large enough to matter, which for a trained model is the better question.
    """

    model: str
    order: int
    prior: PriorCheck | None
    ranks: RankCheck | None
    martingale: MartingaleCheck | None
    exchangeability: ExchangeabilityCheck | None
    convergence: ConvergenceCheck | None
    power: Power
    family: str = "markov"
    families: FamilyCheck | None = None
    atoms: AtomCheck | None = None
    departure: Departure | None = None

    @property
    def p_values(self) -> dict[str, float]:
        checks = {
            "prior": self.prior,
            "ranks": self.ranks,
            "martingale": self.martingale,
            "exchangeability": self.exchangeability,
            "atoms": self.atoms if self.prior is None else None,
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
        bad, swaps = self.alarms, self.exchangeability
        if not self.p_values:
            return f"no check can tell a Bayes filter of {self.family} latents"
        what = f"order {self.order}" if swaps is not None else f"{self.family} latents"
        told = "" if swaps is None else f"; {swaps.verdict}"
        if not bad:
            return f"no deviation from a Bayes filter of {what} beyond chance{told}"
        return f"deviates from a Bayes filter of {what}: {', '.join(bad)}{told}"

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "rank_correlation": None
            if self.departure is None
            else asdict(self.departure.rank_correlation),
            "p_values": self.p_values,
            "p_value": bonferroni(list(self.p_values.values())),
            "verdict": self.verdict,
        }


@undisturbed()
@watched
def check_filter(
    model: Model | Any,
    bank: LatentBank | Any,
    settings: CheckSettings | None = None,
    progress: Watch = None,
    *,
    device: Any = "auto",
) -> FilterReport:
    """Test whether a model behaves as a Bayes filter over the latents of its bank.

    >>> from posteer.banks import sample
    >>> bank = sample("exact:beta-bernoulli", rollouts=64, length=64)
    >>> report = check_filter("exact:beta-bernoulli", bank, CheckSettings(effort=0.1))
    >>> sorted(report.p_values)
    ['exchangeability', 'martingale', 'prior', 'ranks']

    Args:
        model: a name such as `urn` or `exact:urn`, a folder, `./file.py:name`, or an object.
        bank: latents drawn from this model by `sample`: the object, or the file it was saved to.
        settings: how much is asked of the model (`effort`), and the seed.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
        device: where a network runs: auto, cpu or cuda.
    """
    given = settings or CheckSettings()
    model, bank = open_metered(model, device), open_bank(bank)
    require(bank.counts is not None, "this bank was not drawn by rollouts: nothing to check")
    require(
        bank.names(model),
        f"the bank was drawn from {bank.origin.model}, not from {model.name}: nothing to compare",
    )
    require_laws(bank.probe, model, bank.origin.context, "nothing to compare")
    family, seed = bank.latents.family, given.seed
    if family != model.family:  # what its latents were asked to be
        model = Metered(model)
        model.family = family
    known = model.prior
    longest = model.max_length
    length = given.length if longest is None else min(given.length, longest - model.order)
    require(
        length > 2 * model.order + 8,
        f"{model.name} reads too few tokens ({longest}) to be checked",
    )

    def say(what: str, step: int) -> None:
        if progress is not None:
            progress(what, step, 5)

    markov = isinstance(family, MarkovFamily)
    alike = known if markov and known is not None and known.family == family else None
    say("checking the prior", 0)
    exact = None if alike is None else reference(alike, bank, seed)
    prior = None if exact is None else check_prior(bank, exact)
    convergence = check_convergence(bank, exact, seed) if markov else None
    martingale, swaps = None, None
    if markov:
        say("checking the martingale", 1)
        martingale = check_martingale(
            model,
            rollouts=given.rollouts,
            length=length,
            seed=seed,
            independent_rows=bool(getattr(alike, "independent_rows", False)),
        )
        say("swapping blocks", 2)
        swaps = check_exchangeability(model, rollouts=given.rollouts, length=length, seed=seed)
    ranks = None
    if alike is not None:
        say("simulating calibration", 3)
        observed = max(given.observed, model.order)
        ranks = check_ranks(
            model,
            alike,
            simulations=given.simulations,
            draws=given.draws,
            observed=observed,
            future=given.future if longest is None else min(given.future, longest - observed),
            seed=seed,
        )
    posterior = None if known is None else known.after(bank.origin.context)
    families, atoms = None, None
    if given.families:
        say("comparing families", 4)
        families, atoms = _explained(model, bank, posterior, given)
    say("done", 5)
    voting = 2 if prior is None else 4
    return FilterReport(
        model=model.name,
        order=model.order,
        prior=prior,
        ranks=ranks,
        martingale=martingale,
        exchangeability=swaps,
        convergence=convergence,
        power=power_of(posterior, prior, ranks, martingale, swaps, ALARM / voting),
        family=family.name,
        families=families,
        atoms=atoms,
        departure=check_departure(model, bank, seed),
    )


def _explained(
    model: Model, bank: LatentBank, posterior: Prior | None, given: CheckSettings
) -> tuple[FamilyCheck | None, AtomCheck | None]:
    """Which family explains rollouts, and which atom each; those of the bank where it keeps them,
    else some that are drawn for it."""
    n, length = min(ROLLOUTS, given.rollouts), given.length
    context = bank.origin.context
    if model.max_length is not None:
        length = min(length, model.max_length - len(context))
    kept = bank.rollouts
    if kept is None:
        kept = _drawn(model, context, n, length, given.seed)
    finite: object = posterior
    atoms = None
    if isinstance(finite, FinitePrior):
        atoms = check_atoms(classified_by(finite, model.name), kept)
    kinds = (bank.latents.family, None if posterior is None else posterior.family)
    n_states = max(getattr(kind, "n_states", 0) for kind in kinds)
    some = kept[:n, :length]
    if len(some) < LEAST_ROLLOUTS:
        return None, atoms
    return check_families(some, model.vocab_size, finite, n_states, given.seed), atoms


def _drawn(
    model: Model, context: tuple[int, ...], n: int, length: int, seed: int
) -> Int[Tensor, "n T"]:
    generator, parts = torch_stream(seed, "family-check"), []
    size = max(1, model.batch_limit(len(context) + length))
    for start in range(0, n, size):
        observed = torch.tensor(context, dtype=torch.long).expand(min(size, n - start), -1)
        parts.append(trace(model, observed, length, generator).tokens)
    return torch.cat(parts)
