"""What the checks could have seen: a verdict of no deviation is worth as much as that.

For each check the smallest departure that raises its alarm with a chance of `CHANCE`, by the normal
or noncentral law of its statistic at the errors it had. They are of the check's sharpest part:

- prior: the share by which the variance of a row's entry is off; for Dirichlet rows also the
  factor on their concentration that makes it so;
- ranks: the root mean square excess of a bin of ranks, as a share of what it should hold;
- martingale: the drift of a probability between two stops;
- exchangeability: the mean lean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from posteer.banks.checks.exchangeability import ExchangeabilityCheck
from posteer.banks.checks.martingale import MartingaleCheck
from posteer.banks.checks.prior import PriorCheck
from posteer.banks.checks.ranks import BINS, RankCheck
from posteer.banks.checks.statistics import least_noncentrality, normal_quantile
from posteer.families.protocol import Prior

CHANCE = 0.9


@dataclass(frozen=True)
class Power:
    """The smallest departure seen with a `chance`, by check; None where a check saw too little."""

    chance: float
    prior: float | None
    concentration: float | None
    ranks: float | None
    martingale: float | None
    exchangeability: float | None


def power_of(
    law: Prior | None,
    prior: PriorCheck | None,
    ranks: RankCheck | None,
    martingale: MartingaleCheck | None,
    exchangeability: ExchangeabilityCheck | None,
    level: float,
) -> Power:
    """`level` is the chance of a false alarm of each check."""
    spread = None if prior is None else _spread(prior, level)
    return Power(
        chance=CHANCE,
        prior=spread,
        concentration=None if spread is None else _concentration(law, prior, spread),
        ranks=None if ranks is None else _excess(ranks, level),
        martingale=None if martingale is None else _drift(martingale, level),
        exchangeability=None if exchangeability is None else _lean(exchangeability, level),
    )


def _seen(error: float, level: float, sides: int = 2) -> float:
    """A shift of a normal statistic that is beyond its critical value with the chance."""
    return error * (normal_quantile(1 - level / sides) + normal_quantile(CHANCE))


def _spread(check: PriorCheck, level: float) -> float | None:
    sharpest = check.moments.sharpest
    if sharpest is None:
        return None
    # half of the level is for distances of whole laws
    return _seen(sharpest.error, level / 2 / check.moments.compared) / sharpest.exact


def _concentration(law: Prior | None, check: PriorCheck | None, spread: float) -> float | None:
    """An entry of Dirichlet rows has variance m (1 - m) / (a + 1), a the sum of its row.

    Counts of a rollout add to it what any concentration adds; that much less of the rest is seen.
    """
    table = getattr(law, "concentration", None) if getattr(law, "independent_rows", False) else None
    if table is None or check is None or check.moments.sharpest is None or spread >= 1:
        return None
    context, token = check.moments.sharpest.entry
    row = table[context].double()
    total, mean = float(row.sum()), float(row[token] / row.sum())
    smaller = check.moments.sharpest.exact * (1 - spread)
    counting = max(0.0, check.moments.sharpest.exact - mean * (1 - mean) / (total + 1))
    left = smaller - counting
    if left <= 0:
        return None
    return (mean * (1 - mean) / left - 1) / total


def _excess(check: RankCheck, level: float) -> float:
    needed = least_noncentrality(BINS, level / max(1, len(check.p_values)), CHANCE)
    return math.sqrt(needed / check.simulations)


def _drift(check: MartingaleCheck, level: float) -> float | None:
    # two tests a drift: its mean and its slope
    each = level / (2 * max(1, len(check.drifts)))
    return min((_seen(d.error, each) + d.slack for d in check.drifts), default=None)


def _lean(check: ExchangeabilityCheck, level: float) -> float | None:
    """Leans spread about as widely as they are large."""
    error = _seen(1 / math.sqrt(max(1, check.moved)), level, sides=1)
    return check.threshold / (1 - error) if check.told and error < 1 else None
