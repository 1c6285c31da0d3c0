"""Problems for tests: what is asked, opened."""

from posteer.methods.protocol import Problem, Request, pose


def posed(model, utility, length, horizon=4, seed=0, **asked) -> Problem:
    """One problem. A meter that is given counts along with the problem's own."""
    request = Request(
        model=model, utility=utility, length=length, horizon=horizon, seed=seed, **asked
    )
    return pose([request])[0]


def posed_together(model, utilities, length, horizon=4, seeds=(0,), **asked) -> list[Problem]:
    """Every utility with every seed as one batch."""
    return pose(
        [
            Request(
                model=model, utility=utility, length=length, horizon=horizon, seed=seed, **asked
            )
            for utility in utilities
            for seed in seeds
        ]
    )
