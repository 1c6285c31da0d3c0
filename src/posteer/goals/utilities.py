"""What to elicit: each utility in its own file, registered here by name."""

from __future__ import annotations

from collections.abc import Callable

from posteer.core.errors import InputError, require
from posteer.core.spec import Spec, parse_spec
from posteer.families.markov.means import utility_of_kernels
from posteer.goals import dyck, frequency, reverse_cross_entropy, user
from posteer.goals.dyck import Dyck
from posteer.goals.frequency import FrequencyMatch
from posteer.goals.protocol import FiniteStateForm, Utility
from posteer.goals.reverse_cross_entropy import ReverseCrossEntropy
from posteer.goals.user import CallableUtility
from posteer.tokens.contexts import ContextSpace

__all__ = [
    "UTILITIES",
    "CallableUtility",
    "Dyck",
    "FiniteStateForm",
    "FrequencyMatch",
    "ReverseCrossEntropy",
    "Utility",
    "open_utility",
    "utility_of_kernels",
]

UTILITIES: dict[str, Callable[[Spec, int], Utility]] = {
    "dyck": dyck.from_spec,
    "frequency": frequency.from_spec,
    "reverse-xent": reverse_cross_entropy.from_spec,
}


def open_utility(given: str | Utility | Callable[..., float], space: ContextSpace) -> Utility:
    """A utility by name, by `./file.py:function`, as an object, or as a plain function."""
    if isinstance(given, str):
        if ".py:" in given:
            return user.from_file(given, space.vocab_size, space.order)
        spec = parse_spec(given)
        if spec.name not in UTILITIES:
            raise InputError(
                f"unknown utility '{spec.name}': expected one of {', '.join(UTILITIES)} "
                "or ./file.py:function; for searches also forward-xent(tau-0.2)"
            )
        return UTILITIES[spec.name](spec, space.vocab_size)
    if isinstance(given, Utility):
        own = getattr(given, "space", space)
        require(
            own.vocab_size == space.vocab_size,
            f"{given.name} is for {own.vocab_size} tokens: the model has {space.vocab_size}",
        )
        return given
    return CallableUtility(given, vocab_size=space.vocab_size, order=space.order)
