"""Joint tests and the power of the comparison, against enumeration and scipy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from posteer.core.randomness import numpy_stream
from posteer.paper.agreement import Pair
from posteer.paper.cells import Cells
from posteer.paper.joint import Starts, exact_tail, holm, joint_test, sign_test
from posteer.paper.power import constant, nearer, printed_same, right, swapped
from posteer.paper.published import METHODS, Figure, published

FREQUENCIES = ["q-0.0", "q-0.1", "q-0.2"]


def rows_of(key, values, statistic="expected_utility"):
    model, target, length, method = key
    utility = "dyck" if target == "dyck" else f"frequency({target[2:]})"
    blank = {"rank": None, "ess_fraction": None, "expected_utility": None, "optimum": None}
    return [
        {
            **blank,
            **{"model": model, "utility": utility, "length": length, "method": method},
            **{"seed": seed, "horizon": 4, "max_model_tokens": None, "status": "done"},
            statistic: float(value),
        }
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(("below", "above"), [(0, 0), (3, 3), (38, 6), (1, 10), (0, 5)])
def test_the_sign_test_is_scipys(below, above):
    if below + above:
        known = stats.binomtest(below, below + above).pvalue
        assert sign_test(below, above) == pytest.approx(known)
    else:
        assert sign_test(below, above) == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([]) == []


def test_the_exact_tail_against_all_samples_of_starts(monkeypatch):
    """Four starts, means of three: all 64 samples."""
    monkeypatch.setattr("posteer.paper.joint.RUNS", 3)
    law = np.array([[1.0, 2.0], [4.0, 1.0], [7.0, 5.0], [2.0, 2.0]])
    scaled = ((law - law.mean(0)) / law.std(0)).mean(1)
    means = [np.mean(some) for some in product(scaled, repeat=3)]
    for theirs in ([5.0, 3.0], [1.5, 1.6]):
        gap = ((np.array(theirs) - law.mean(0)) / law.std(0)).mean()
        tail = np.mean([one >= gap if gap > 0 else one <= gap for one in means])
        found = exact_tail(law, np.array(theirs), np.zeros(2))
        assert found == pytest.approx(min(1.0, 2 * tail), abs=1e-9)
        fixed = np.column_stack([law, np.full(4, 6.0)])  # a cell that no start moves
        near, digits = np.array([*theirs, 6.04]), np.array([0.0, 0.0, 0.1])
        assert exact_tail(fixed, near, digits) == found
        assert exact_tail(fixed, np.array([*theirs, 6.1]), digits) == 0.0


def test_a_true_replication_is_seldom_called_different(monkeypatch):
    """Ten seeds of a law, and a published mean that is ten more of them, a hundred times: p below
    0.05 in at most 13, which a fair test exceeds once in 2,000; seeds move all cells at once."""
    monkeypatch.setattr("posteer.paper.joint.DRAWS", 499)
    alarms = 0
    for number in range(100):
        stream = numpy_stream(number, "replication")
        keys = [("urn", target, 50, "ppt-rb") for target in FREQUENCIES]
        rows, known = [], {}
        shared = stream.normal(size=20)
        for key, scale in zip(keys, (0.1, 0.2, 0.5), strict=True):
            values = scale * (shared + 0.3 * stream.normal(size=20))
            rows += rows_of(key, values[:10])
            known[(*key, "J")] = Figure(round(float(values[10:].mean()), 2), 0.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("posteer.paper.joint.published", lambda known=known: known)
            reads = [(key, "J") for key in keys]
            alarms += joint_test(Cells(rows), reads, None, str(number)).p < 0.05
    assert alarms <= 13


def test_cells_that_all_lean_one_way_are_found_together():
    """Each within two standard errors of the published mean, twelve of them jointly never."""
    stream = numpy_stream(0, "leaning")
    targets = [f"q-{q / 10}" for q in range(11)]
    rows, reads = [], []
    for target in targets:
        key = ("urn", target, 50, "ppt-rb")
        noise = stream.normal(size=10)
        noise = 0.1 * (noise - noise.mean()) / noise.std(ddof=1)
        rows += rows_of(key, published()[*key, "J"].value - 0.07 + noise)
        reads.append((key, "J"))
    cells = Cells(rows)
    assert joint_test(cells, reads[:1], None, "one").p > 0.05
    together = joint_test(cells, reads, None, "all")
    assert together.p < 1e-3 and together.mean > 1


def test_runs_that_failed_leave_the_seeds_that_all_cells_have():
    """A seed that one cell lacks is left out of all; with no seed in common each has its own."""
    keys = [("urn", target, 50, "ppt-rb") for target in FREQUENCIES[:2]]
    first, second = (rows_of(key, [0.1, 0.2, 0.3, 0.4]) for key in keys)
    reads = [(key, "J") for key in keys]
    whole = joint_test(Cells(first + second), reads, None, "failed")
    cut = joint_test(Cells(first + second[:3]), reads, None, "failed")
    same = joint_test(Cells(first[:3] + second[:3]), reads, None, "failed")
    assert cut == same != whole
    apart = joint_test(Cells(first[:2] + second[2:]), reads, None, "failed")
    assert apart.cells == 2 and 0 < apart.p <= 1


def test_starts_that_are_enumerated_leave_nothing_of_ours_to_chance():
    """Half of 64 starts end at rank 3, half at 33: the mean of ten is binomial."""
    key = ("urn", "q-0.0", 6, "gcg")
    starts = Starts({("urn", "q-0.0", "rank"): [3.0] * 32 + [33.0] * 32})
    found = joint_test(Cells([]), [(key, "rank")], starts, "binomial")
    theirs = published()[*key, "rank"].value  # 16.0, nearest below: four or fewer of ten at 33
    assert theirs == 16.0 and found.enumerated
    assert found.p == pytest.approx(min(1.0, 4 * stats.binom.cdf(4, 10, 0.5)), abs=0.02)


def pair(target, method, ours, theirs, error=0.0, model="urn", length=50):
    key = (model, target, length, method)
    return Pair(key, Figure(ours, error), Figure(theirs, 0.0))


def test_swapped_methods_and_constants_score_as_by_hand():
    """Methods apart by 1: swapped, none matches; one constant matches the target at the median."""
    found = [
        pair(target, method, base + step, base + step)
        for target, base in (("q-0.1", 10.0), ("q-0.2", 20.0), ("q-0.3", 30.0))
        for step, method in enumerate(METHODS)
    ]
    whole = right(found, "J")
    assert (whole.within, whole.same, whole.of) == (15, 15, 15)
    assert all((one.within, one.same, one.of) == (0, 0, 15) for one in swapped(found, "J"))
    assert len(swapped(found, "J")) == 4
    held = constant(found, "J")
    assert (held.within, held.same, held.of) == (1, 1, 15)  # the median, 22, is one of them
    assert (nearer(found, "J").own, nearer(found, "J").of) == (60, 60)


def test_nearer_to_its_own_is_what_swapping_turns_round():
    """Ours given to the other of two methods: right where it was wrong."""
    good = [pair("dyck", "gcg", 0.6, 0.61), pair("dyck", "ppt", 0.2, 0.02)]
    bad = [pair("dyck", "gcg", 0.2, 0.61), pair("dyck", "ppt", 0.6, 0.02)]
    assert (nearer(good, "J").own, nearer(bad, "J").own) == (2, 0)


def test_printed_the_same():
    assert printed_same(Figure(-0.0549, None), Figure(-0.05, None), "J")
    assert not printed_same(Figure(-0.0551, None), Figure(-0.05, None), "J")
    assert printed_same(Figure(3.94, None), Figure(3.9, None), "rank")


def test_three_errors_are_left_once_in_130():
    """What RESULTS.md says of two means of ten."""
    assert 1 / (2 * stats.t.sf(3, 18)) == pytest.approx(130, abs=1)
