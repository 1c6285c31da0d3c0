"""Could the comparison have failed? Counts of cells that match, beside what matches by itself.

Two criteria: within three standard errors of the difference, rounding included; and printed the
same. Beside each the same counts of comparisons that should fail: our figure of one method against
the published one of another, and one constant in place of all our figures of a family.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from posteer.paper.agreement import Pair
from posteer.paper.cells import PRINTED_DIGITS, Key, compatible
from posteer.paper.paired import family_of
from posteer.paper.published import METHODS, Figure


@dataclass(frozen=True)
class Score:
    """Of so many comparisons: within three errors, and printed the same."""

    within: int
    same: int
    of: int


def printed_same(ours: Figure, theirs: Figure, statistic: str) -> bool:
    """Ours, rounded as the table is, is the table's figure."""
    digits = PRINTED_DIGITS[statistic]
    return round(ours.value, digits) == round(theirs.value, digits)


def score(found: Iterable[tuple[Figure, Figure]], statistic: str) -> Score:
    """Of figures of ours beside published ones."""
    hits = [
        (compatible(ours, theirs, statistic), printed_same(ours, theirs, statistic))
        for ours, theirs in found
    ]
    return Score(sum(a for a, _ in hits), sum(b for _, b in hits), len(hits))


def right(found: Sequence[Pair], statistic: str) -> Score:
    """Each figure beside its own."""
    return score([(pair.ours, pair.theirs) for pair in found], statistic)


def swapped(found: Sequence[Pair], statistic: str) -> list[Score]:
    """Each figure beside that of the next method, of the one after it, and so on round."""
    theirs = {pair.key: pair.theirs for pair in found}
    methods = [k for k in METHODS if any(key[3] == k for key in theirs)]
    scores = []
    for shift in range(1, len(methods)):
        turned = []
        for pair in found:
            model, target, length, method = pair.key
            other = methods[(methods.index(method) + shift) % len(methods)]
            figure = theirs.get((model, target, length, other))
            if figure is not None:
                turned.append((pair.ours, figure))
        scores.append(score(turned, statistic))
    return scores


def constant(found: Sequence[Pair], statistic: str) -> Score:
    """The median published figure of each model, length and family in place of ours; our errors."""
    groups: dict[tuple[str, int, str], list[Pair]] = defaultdict(list)
    for pair in found:
        groups[pair.key[0], pair.key[2], family_of(pair.key[1])].append(pair)
    held = []
    for several in groups.values():
        if len({pair.key[1] for pair in several}) > 1:  # a family of one target has no constant
            middle = median(pair.theirs.value for pair in several)
            held += [(Figure(middle, p.ours.standard_error), p.theirs) for p in several]
    return score(held, statistic)


@dataclass(frozen=True)
class Nearer:
    """Of pairs of methods published more than three errors apart, taken both ways round: how often
    is our figure of one nearer to its own published figure than to the other's?"""

    own: int
    of: int


def nearer(found: Sequence[Pair], statistic: str) -> Nearer:
    """Scored the wrong way round it would be the rest: no comparison of this kind matches by
    itself."""
    by_cell: dict[tuple[str, str, int], list[Pair]] = defaultdict(list)
    for pair in found:
        by_cell[_where(pair.key)].append(pair)
    own = total = 0
    for several in by_cell.values():
        for one in several:
            for other in several:
                errors = [f.standard_error or 0.0 for f in (one.theirs, other.theirs)]
                apart = abs(one.theirs.value - other.theirs.value)
                rounding = 10.0 ** -PRINTED_DIGITS[statistic] / math.sqrt(12)
                if one is not other and apart > 3 * math.hypot(*errors, rounding, rounding):
                    total += 1
                    gap = abs(one.ours.value - one.theirs.value)
                    own += gap < abs(one.ours.value - other.theirs.value)
    return Nearer(own, total)


def _where(key: Key) -> tuple[str, str, int]:
    return key[:3]
