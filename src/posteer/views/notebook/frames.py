"""Records as data frames."""

from __future__ import annotations

from functools import singledispatch
from itertools import product
from typing import Any

from posteer.banks.checks.report import FilterReport
from posteer.banks.drawn import LatentBank
from posteer.core.errors import InputError
from posteer.results import Comparison, Elicitation, Judgement, flat


def _frame(rows: Any) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise InputError("data frames need pandas: pip install 'posteer[results]'") from error
    return pandas.DataFrame(rows)


@singledispatch
def frame_of(record: Any) -> Any:
    """A record as rows."""
    raise InputError(f"there is no data frame of a {type(record).__name__}")


@frame_of.register
def _(found: Elicitation) -> Any:
    return _frame([flat(found.to_json())])


@frame_of.register
def _(judged: Judgement) -> Any:
    return _frame([flat(judged.to_json())])


@frame_of.register
def _(found: Comparison) -> Any:
    return _frame([flat(run.to_json()) for one in found.methods for run in one.runs])


@frame_of.register
def _(report: FilterReport) -> Any:
    return _frame({"check": list(report.p_values), "p_value": list(report.p_values.values())})


@frame_of.register
def _(bank: LatentBank) -> Any:
    """What each latent is, a column for each of its numbers: `kernels_0_1` is row 0, token 1."""
    columns: dict[str, Any] = {}
    for name, tensor in bank.latents.tensors().items():
        array: Any = tensor.numpy()
        if len(array) == len(bank):
            for place in product(*map(range, array.shape[1:])):
                columns["_".join([name, *map(str, place)])] = array[(slice(None), *place)]
    return _frame(columns)
