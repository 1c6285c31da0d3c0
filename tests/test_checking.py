"""Annotations are enforced: in the first calls of each test, and in all if asked."""

import math

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeException
from checking import FIRST_CALLS, Checked
from jaxtyping import Float
from torch import Tensor

from posteer.core.weights import normalise


def test_what_is_tested_is_checked():
    with pytest.raises((BeartypeException, jaxtyping.TypeCheckError)):
        normalise("no tensor")


@pytest.mark.parametrize("most", [FIRST_CALLS, math.inf])
def test_first_calls_of_each_test_are_checked_or_all(most, monkeypatch):
    @jaxtyping.jaxtyped(typechecker=beartype)
    def summed(one: Float[Tensor, "n"], other: Float[Tensor, "n"]) -> float:
        return float(one.sum() + other.sum())

    monkeypatch.setattr(Checked, "calls", most)
    one, wrong = torch.ones(2), torch.ones(3)
    for _ in range(FIRST_CALLS - 1):
        assert summed(one, one) == 4
    with pytest.raises(jaxtyping.TypeCheckError):
        summed(one, wrong)
    if most == math.inf:
        with pytest.raises(jaxtyping.TypeCheckError):
            summed(one, wrong)
    else:
        assert summed(one, wrong) == 5, "no more of it is looked at"
    monkeypatch.setattr(Checked, "test", Checked.test + 1)
    with pytest.raises(jaxtyping.TypeCheckError):
        summed(one, wrong)
