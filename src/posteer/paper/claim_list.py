"""What the paper says in prose of its tables, statement by statement, in our words."""

from __future__ import annotations

from dataclasses import dataclass

from posteer.paper.claim_checks import (
    COIN,
    TIE,
    URN,
    Check,
    ahead_on_average,
    all_equal,
    alone_at_the_top,
    beat,
    behind,
    between,
    ess_falls,
    gcg_just_misses,
    inverts,
    most,
    not_behind,
    ppt_close,
    ranked_before,
    roughly_level,
    same_j,
    together,
)
from posteer.paper.published import FREQUENCIES, METHODS, TARGETS, VARIANTS

TAUS = [t for t in TARGETS[COIN] if t.startswith("tau-")]
SYMMETRIC = [t for t in TARGETS[URN] if t.startswith("sym-")]
RANDOM = [t for t in TARGETS[URN] if t.startswith("dir-")]
KERNELS = SYMMETRIC + RANDOM
EXTREMES = ["q-0.0", "q-0.1", "q-0.2", "q-0.8", "q-0.9", "q-1.0"]
MIDDLE = ["q-0.4", "q-0.5", "q-0.6"]
HIGH, LOW = ["q-0.6", "q-0.7"], ["q-0.3", "q-0.4"]
LATE = tuple(method for method in METHODS if method != "ppt-rb")
NOT_ROLLED = ("gcg", "ppt-analytic", "ppt-rb-analytic")


@dataclass(frozen=True)
class Claim:
    """A statement, the table it rests on, and how it is checked."""

    name: str
    statement: str
    table: str
    check: Check


def claims() -> list[Claim]:
    """In the order of the paper: introduction, section 4, appendix."""
    return [*_overall(), *_cross_entropy(), *_frequency(), *_dyck()]


def _overall() -> list[Claim]:
    urn = [KERNELS, FREQUENCIES, ["dyck"]]
    return [
        Claim(
            "urn-6",
            "PPT methods are above GCG in the mean of every family (urn, m=6)",
            "rev-xent-urn",
            ahead_on_average(URN, urn, 6, VARIANTS, "gcg", 0.0),
        ),
        Claim(
            "coin",
            "GCG is level with or above every PPT method in every cell (coin, both lengths)",
            "rev-xent-bb",
            not_behind(COIN, TARGETS[COIN], (6, 50), VARIANTS, "gcg"),
        ),
    ]


def _cross_entropy() -> list[Claim]:
    return [
        Claim(
            "coin-xent-6",
            "All five methods find the best prompt for every tau (coin, m=6)",
            "rev-xent-bb-rank",
            all_equal(COIN, TAUS, 6, METHODS, 1.0),
        ),
        Claim(
            "coin-xent-6-J",
            "All five methods reach the same J for every tau (coin, m=6)",
            "rev-xent-bb",
            same_j(COIN, TAUS, 6, METHODS),
        ),
        Claim(
            "coin-xent-50-even",
            "GCG and PPT-RB match for every tau (coin, m=50)",
            "rev-xent-bb",
            same_j(COIN, TAUS, 50, ("gcg", "ppt-rb")),
        ),
        Claim(
            "coin-xent-50-ppt",
            "PPT is behind PPT-RB for every tau (coin, m=50)",
            "rev-xent-bb",
            behind(COIN, TAUS, 50, ("ppt",), "ppt-rb", TIE),
        ),
        Claim(
            "coin-xent-50-ppt-analytic",
            "PPT (A) is behind PPT-RB (A) for every tau (coin, m=50)",
            "rev-xent-bb",
            behind(COIN, TAUS, 50, ("ppt-analytic",), "ppt-rb-analytic", TIE),
        ),
        Claim(
            "urn-xent-6",
            "Every PPT variant is above GCG on every target (urn, m=6)",
            "rev-xent-urn",
            beat(URN, KERNELS, 6, VARIANTS, "gcg", 1.0),
        ),
        *(
            Claim(
                f"urn-xent-{m}-{name}",
                f"Every PPT variant is above GCG by 0.1 in the mean of {said} targets (urn, m={m})",
                "rev-xent-urn",
                ahead_on_average(URN, [targets], m, VARIANTS, "gcg", 0.1),
            )
            for m in (6, 50)
            for name, said, targets in (
                ("sym", "symmetric", SYMMETRIC),
                ("dir", "random", RANDOM),
            )
        ),
        Claim(
            "urn-xent-50",
            "PPT variants are above GCG by 0.1 or more in most cells (urn, m=50)",
            "rev-xent-urn",
            beat(URN, KERNELS, 50, VARIANTS, "gcg", 0.51, 0.1),
        ),
        Claim(
            "urn-xent-rank",
            "PPT variants are at rank 1 to 3 in most cells (urn, m=6)",
            "rev-xent-urn-rank",
            most(URN, KERNELS, 6, VARIANTS, 3.0),
        ),
        Claim(
            "urn-xent-gcg",
            "GCG is at mean rank 5 to 16 (urn, m=6)",
            "rev-xent-urn-rank",
            between(URN, KERNELS, 6, ("gcg",), "rank", 5.0, 16.0, 1.0),
        ),
    ]


def _frequency() -> list[Claim]:
    return [
        Claim(
            "coin-freq-6-J",
            "All methods reach the same J, to 0.001, for every frequency (coin, m=6)",
            "freq-match-summary",
            same_j(COIN, FREQUENCIES, 6, METHODS),
        ),
        Claim(
            "coin-freq-6",
            "All methods are at rank 1 for most frequencies (coin, m=6)",
            "freq-match-rank",
            together(COIN, FREQUENCIES, 6, METHODS, 1.0),
        ),
        Claim(
            "coin-freq-6-high",
            "At q=0.6 and 0.7 PPT variants are at rank 6 to 11 (coin, m=6)",
            "freq-match-rank",
            between(COIN, HIGH, 6, VARIANTS, "rank", 6.0, 11.0, 1.0),
        ),
        Claim(
            "coin-freq-6-high-gcg",
            "At q=0.6 and 0.7 GCG is at rank 1 to 4 (coin, m=6)",
            "freq-match-rank",
            between(COIN, HIGH, 6, ("gcg",), "rank", 1.0, 4.0, 1.0),
        ),
        Claim(
            "coin-freq-6-low",
            "At q=0.3 and 0.4 it is GCG that ranks behind (coin, m=6)",
            "freq-match-rank",
            ranked_before(COIN, LOW, 6, VARIANTS, "gcg"),
        ),
        Claim(
            "urn-freq-6-J",
            "Every PPT variant is above GCG in the mean over frequencies (urn, m=6)",
            "freq-match-summary",
            ahead_on_average(URN, [FREQUENCIES], 6, VARIANTS, "gcg", 0.0),
        ),
        Claim(
            "urn-freq-6",
            "PPT variants are at rank 1 to 4 at the extreme frequencies (urn, m=6)",
            "freq-match-rank",
            between(URN, EXTREMES, 6, VARIANTS, "rank", 1.0, 4.0, 1.0),
        ),
        Claim(
            "urn-freq-6-gcg",
            "GCG is at rank 15 to 18 at the extreme frequencies (urn, m=6)",
            "freq-match-rank",
            between(URN, EXTREMES, 6, ("gcg",), "rank", 15.0, 18.0, 1.0),
        ),
        *(
            Claim(
                f"urn-freq-6-middle-{method}",
                f"At q=0.4 to 0.6 {shown} and GCG are roughly level (urn, m=6)",
                "freq-match-summary",
                roughly_level(URN, MIDDLE, 6, method, "gcg"),
            )
            for method, shown in (("ppt-rb", "PPT-RB"), ("ppt", "PPT"))
        ),
        Claim(
            "urn-freq-6-hard",
            "At q=0.7 no method is near the best prompt: rank 8 or worse (urn, m=6)",
            "freq-match-rank",
            between(URN, ["q-0.7"], 6, METHODS, "rank", 8.0, 64.0, 1.0),
        ),
        Claim(
            "coin-freq-50",
            "GCG is nearer to zero than every PPT variant in every cell (coin, m=50)",
            "freq-match-summary",
            behind(COIN, FREQUENCIES, 50, VARIANTS, "gcg"),
        ),
        Claim(
            "urn-freq-50",
            "PPT-RB and GCG are roughly level on average over frequencies (urn, m=50)",
            "freq-match-summary",
            roughly_level(URN, FREQUENCIES, 50, "ppt-rb", "gcg"),
        ),
        Claim(
            "urn-freq-50-ppt",
            "PPT is behind PPT-RB for every frequency (urn, m=50)",
            "freq-match-summary",
            behind(URN, FREQUENCIES, 50, ("ppt",), "ppt-rb"),
        ),
    ]


def _dyck() -> list[Claim]:
    return [
        Claim(
            "coin-dyck-6",
            "All PPT variants find the best prompt for Dyck on every seed (coin, m=6)",
            "dyck-rank",
            all_equal(COIN, ["dyck"], 6, VARIANTS, 1.0),
        ),
        Claim(
            "coin-dyck-6-gcg",
            "GCG ranks behind there, by at most 1e-4 in J (coin, m=6)",
            "dyck-rank",
            gcg_just_misses,
        ),
        Claim(
            "coin-dyck-50",
            "All methods reach 0.12 for Dyck (coin, m=50)",
            "dyck-summary-table",
            between(COIN, ["dyck"], 50, METHODS, "J", 0.12, 0.12, 0.01),
        ),
        Claim(
            "urn-dyck-6",
            "PPT-RB finds the best prompt for Dyck on every seed (urn, m=6)",
            "dyck-rank",
            all_equal(URN, ["dyck"], 6, ("ppt-rb",), 1.0),
        ),
        Claim(
            "urn-dyck-6-alone",
            "No other method does (urn, m=6)",
            "dyck-rank",
            alone_at_the_top(URN, "dyck", 6, "ppt-rb", LATE),
        ),
        Claim(
            "urn-dyck-6-ppt",
            "PPT is close behind PPT-RB for Dyck, 0.54 to 0.59 (urn, m=6)",
            "dyck-summary-table",
            ppt_close,
        ),
        Claim(
            "urn-dyck-6-rest",
            "The analytic variants and GCG reach 0.29 to 0.38 for Dyck (urn, m=6)",
            "dyck-summary-table",
            between(URN, ["dyck"], 6, NOT_ROLLED, "J", 0.29, 0.38, 0.01),
        ),
        Claim(
            "urn-dyck-50",
            "GCG leaves all PPT variants far behind for Dyck (urn, m=50)",
            "dyck-summary-table",
            inverts,
        ),
        Claim(
            "urn-dyck-50-gcg",
            "GCG reaches 0.61 for Dyck (urn, m=50)",
            "dyck-summary-table",
            between(URN, ["dyck"], 50, ("gcg",), "J", 0.61, 0.61, 0.01),
        ),
        Claim(
            "urn-dyck-50-ppt",
            "The PPT variants reach 0.014 to 0.021 for Dyck (urn, m=50)",
            "dyck-summary-table",
            between(URN, ["dyck"], 50, VARIANTS, "J", 0.014, 0.021, 0.001),
        ),
        Claim(
            "urn-dyck-ess",
            "ESS/L of PPT-RB for Dyck falls from 0.22 at m=6 to 0.07 at m=50 (urn)",
            "ess-k1-m50",
            ess_falls,
        ),
    ]
