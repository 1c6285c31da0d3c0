"""The weights behind a user's object, where it holds any that can be found."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def weights_digest(thing: Any) -> str:
    """SHA-256 of the weights of every torch module that a thing is, holds or names; '' if none.

    An object holds its attributes; a function names what it closes over and the globals it uses; a
    method names its object's. Nothing deeper is looked for.
    """
    digest, found = hashlib.sha256(), False
    for place, module in _modules_of(thing):
        for name, entry in sorted(module.state_dict().items()):
            if isinstance(entry, torch.Tensor):
                found = True
                digest.update(f"{place} {name} {entry.dtype} {tuple(entry.shape)}".encode())
                flat = entry.detach().cpu().contiguous().flatten()
                digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest() if found else ""


def _modules_of(thing: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    if isinstance(thing, torch.nn.Module):
        yield "", thing
        return
    held: dict[str, Any] = {**_names_of(thing), **getattr(thing, "__dict__", {})}
    owner = getattr(thing, "__self__", None)
    if owner is not None:
        held |= {"self": owner, **getattr(owner, "__dict__", {})}
    for name, value in sorted(held.items()):
        if isinstance(value, torch.nn.Module):
            yield name, value


def _names_of(thing: Any) -> Mapping[str, Any]:
    """What a function or method, or an object that is called, reads from outside."""
    called = thing if inspect.isroutine(thing) else vars(type(thing)).get("__call__")
    called = getattr(called, "__func__", called)
    if not inspect.isfunction(called):
        return {}
    try:
        read = inspect.getclosurevars(called)
    except ValueError:  # a cell that is still empty
        return {}
    return {**read.globals, **read.nonlocals}
