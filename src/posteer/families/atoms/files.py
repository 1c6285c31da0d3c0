"""Atoms from a file: safetensors, npz or JSON. Nothing in it is ever run.

safetensors and npz: each table of two axes (contexts x tokens) is a kernel called by its key, each
of three (states x tokens x states) the operators of a hidden Markov model, whose start law is
`KEY.start`; `weights` are those of the atoms in the order of their names. JSON has a list of atoms:

    {"atoms": [{"name": "fair", "weight": 0.5, "kernel": [[0.5, 0.5]]},
               {"name": "sticky", "weight": 0.5, "operators": [..], "start": [..]}]}
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from posteer.core import Float, InputError, require
from posteer.core.reading import read_json
from posteer.core.spec import number, shown
from posteer.families.atoms.side_by_side import side_by_side
from posteer.families.finite_state.machines import StateLatents, padded, state_latents
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.reading import ReadingLatents
from posteer.tokens.contexts import space_of_table, validated_kernel

SUFFIXES = (".safetensors", ".npz", ".json")
LARGEST_FILE = 2**30
START, WEIGHTS = ".start", "weights"


@dataclass(frozen=True, eq=False)
class AtomsInFile:
    """Kernels and machines by name, with their weights if there are any."""

    names: tuple[str, ...]
    tables: tuple[Tensor, ...]
    starts: tuple[Tensor | None, ...]
    weights: Float[Tensor, "J"] | None
    digest: str

    def latents(self, what: str) -> tuple[ReadingLatents, tuple[int, ...]]:
        """All of them as latents, and which atom each latent is."""
        kernels = [at for at, table in enumerate(self.tables) if table.ndim == 2]
        machines = [at for at, table in enumerate(self.tables) if table.ndim == 3]
        parts: list[ReadingLatents] = []
        if kernels:
            parts.append(from_kernels([self._kernel(at, what) for at in kernels]))
        if machines:
            parts.append(padded([self._machine(at, what) for at in machines]))
        return side_by_side(parts), (*kernels, *machines)

    def _kernel(self, at: int, what: str) -> Float[Tensor, "C V"]:
        name = f"{what}: {self.names[at]}"
        n_rows, n_columns = self.tables[at].shape
        space_of_table(n_rows, n_columns, name)
        return validated_kernel(self.tables[at].double(), name)

    def _machine(self, at: int, what: str) -> StateLatents:
        table, start = self.tables[at].double(), self.starts[at]
        name = f"{what}: {self.names[at]}"
        return machine_of(table, start, name)


def machine_of(table: Tensor, start: Tensor | None, what: str) -> StateLatents:
    """One hidden Markov model; it starts with its stationary law unless another is given."""
    fits = table.ndim == 3 and table.shape[0] == table.shape[2]
    require(fits, f"{what}: operators of shape {tuple(table.shape)}: expected S x V x S")
    checked = validated_kernel(table.flatten(1), f"{what}: operators of a state").view(table.shape)
    initial = stationary(checked) if start is None else start.double()
    return state_latents(initial[None], checked[None], what)


def stationary(operators: Float[Tensor, "S V S"]) -> Float[Tensor, "S"]:
    """The law of states that a long history leaves, averaged over its phases."""
    moves = operators.sum(1)
    size = len(moves)
    system = torch.cat([moves.T - torch.eye(size, dtype=moves.dtype), moves.new_ones(1, size)])
    target = moves.new_zeros(size + 1, 1)
    target[-1] = 1.0
    law = torch.linalg.lstsq(system, target, driver="gelsd").solution[:, 0].clamp(min=0.0)
    return law / law.sum()


def read_atoms(path: Path) -> AtomsInFile:
    """What a file holds, or one line that says what is wrong with it."""
    require(path.is_file(), f"{path}: no such file of atoms")
    require(path.stat().st_size <= LARGEST_FILE, f"{path}: larger than {LARGEST_FILE} bytes")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if path.suffix == ".json":
        return _of_json(read_json(data.decode("utf-8", "replace"), str(path)), path, digest)
    if path.suffix == ".safetensors":
        try:
            tensors = load_tensors(data)
        except (SafetensorError, ValueError) as error:
            raise InputError(f"{path} is no safetensors file, or is cut short: {error}") from error
    else:
        tensors = _of_npz(path)
    return _of_tensors(tensors, path, digest)


def _of_npz(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path) as held:
            arrays = {name: held[name] for name in held.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no npz file of numbers, or is cut short: {error}") from error
    for name, array in arrays.items():
        require(array.dtype.kind in "fiu", f"{path}: {name} holds {array.dtype}: expected numbers")
    return {name: torch.from_numpy(array.astype(np.float64)) for name, array in arrays.items()}


def _of_tensors(tensors: dict[str, Tensor], path: Path, digest: str) -> AtomsInFile:
    weights = tensors.pop(WEIGHTS, None)
    starts = {name: one for name, one in tensors.items() if name.endswith(START)}
    names = tuple(sorted(set(tensors) - set(starts)))
    require(len(names) > 0, f"{path}: no table in it, expected one for each atom")
    for name in names:
        axes = tensors[name].ndim
        require(
            axes in (2, 3),
            f"{path}: {shown(name)} has {axes} axes: expected 2 (contexts x tokens) or 3 "
            "(states x tokens x states)",
        )
    strange = sorted(name for name in starts if name.removesuffix(START) not in names)
    require(not strange, f"{path}: {shown(strange and strange[0])} is the start of nothing")
    if weights is not None:
        good = weights.shape == (len(names),)
        require(good, f"{path}: weights of shape {tuple(weights.shape)} for {len(names)} atoms")
    return AtomsInFile(
        names,
        tuple(tensors[name].double() for name in names),
        tuple(starts.get(f"{name}{START}") for name in names),
        None if weights is None else weights.double(),
        digest,
    )


def _of_json(held: Any, path: Path, digest: str) -> AtomsInFile:
    atoms = held.get("atoms") if isinstance(held, dict) else None
    good = isinstance(atoms, list) and len(atoms) > 0 and all(isinstance(a, dict) for a in atoms)
    require(good, f'{path}: expected {{"atoms": [{{"name": .., "kernel": ..}}, ..]}}')
    assert isinstance(atoms, list)
    known = {"name", "weight", "kernel", "operators", "start"}
    tables, starts, weights = [], [], []
    for at, atom in enumerate(atoms):
        name = f"{path}: atom {at}"
        strange = sorted(set(atom) - known)
        require(not strange, f"{name} has '{shown(strange and strange[0])}': expected {known}")
        one = ("kernel" in atom) != ("operators" in atom)
        require(one, f"{name}: expected a kernel or operators")
        axes = 2 if "kernel" in atom else 3
        tables.append(array_of(atom.get("kernel", atom.get("operators")), axes, name))
        starts.append(array_of(atom["start"], 1, name) if "start" in atom else None)
        if "weight" in atom:
            weights.append(number(atom["weight"], f"{name}: weight"))
    good = len(weights) in (0, len(atoms))
    require(
        good, f"{path}: {len(weights)} of {len(atoms)} atoms have a weight: expected all or none"
    )
    names = tuple(str(atom.get("name", at)) for at, atom in enumerate(atoms))
    given = torch.tensor(weights, dtype=torch.float64) if weights else None
    return AtomsInFile(names, tuple(tables), tuple(starts), given, digest)


def array_of(value: Any, axes: int, what: str) -> Float[Tensor, "..."]:
    """Nested lists of numbers with so many axes, or a refusal that names `what`."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: expected lists of numbers, rows of one length") from error
    good = found.ndim == axes and found.size > 0
    require(good, f"{what}: a table of shape {found.shape}: expected {axes} axes")
    return torch.from_numpy(found)
