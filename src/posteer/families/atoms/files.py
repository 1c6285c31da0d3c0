"""Atoms from a file: safetensors, npz or JSON. Nothing in it is ever run.

safetensors and npz: each table of two axes (contexts x tokens) is a kernel called by its key, each
of three (states x tokens x states) the operators of a hidden Markov model, whose start law is
`KEY.start`; `weights` are those of the atoms in the order of their names. JSON has a list of atoms:

    {"atoms": [{"name": "fair", "weight": 0.5, "kernel": [[0.5, 0.5]]},
               {"name": "sticky", "weight": 0.5, "operators": [..], "start": [..]}]}
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from posteer.core import Float, InputError, require
from posteer.core.files import path_of, read_plain, write_atomically
from posteer.core.reading import read_json
from posteer.core.spec import number, shown
from posteer.families.atoms.prior import MOST_ATOMS
from posteer.families.atoms.side_by_side import side_by_side
from posteer.families.finite_state.fit import stationary
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
        vocabs = sorted({table.shape[1] for table in self.tables})
        require(len(vocabs) == 1, f"{what}: atoms over {vocabs} tokens: expected one vocabulary")
        kernels = [at for at, table in enumerate(self.tables) if table.ndim == 2]
        machines = [at for at, table in enumerate(self.tables) if table.ndim == 3]
        parts: list[ReadingLatents] = []
        if kernels:
            parts.append(from_kernels([self._kernel(at, what) for at in kernels]))
        if machines:
            parts.append(padded([self._machine(at, what) for at in machines]))
        return side_by_side(parts), (*kernels, *machines)

    def _kernel(self, at: int, what: str) -> Float[Tensor, "C V"]:
        name = f"{what}: {_plain(self.names[at])}"
        n_rows, n_columns = self.tables[at].shape
        space_of_table(n_rows, n_columns, name)
        return validated_kernel(self.tables[at].double(), name)

    def _machine(self, at: int, what: str) -> StateLatents:
        table, start = self.tables[at].double(), self.starts[at]
        name = f"{what}: {_plain(self.names[at])}"
        return machine_of(table, start, name)


def machine_of(table: Tensor, start: Tensor | None, what: str) -> StateLatents:
    """One hidden Markov model; it starts with its stationary law unless another is given."""
    fits = table.ndim == 3 and table.shape[0] == table.shape[2]
    require(fits, f"{what}: operators of shape {tuple(table.shape)}: expected S x V x S")
    checked = validated_kernel(table.flatten(1), f"{what}: operators of a state").view(table.shape)
    initial = stationary(checked[None])[0] if start is None else start.double()
    return state_latents(initial[None], checked[None], what)


def read_atoms(path: Path) -> AtomsInFile:
    """What a file holds, or one line that says what is wrong with it."""
    require(path.is_file(), f"'{_plain(path)}': no such file of atoms")
    require(path.stat().st_size <= LARGEST_FILE, f"{path}: larger than {LARGEST_FILE} bytes")
    data = read_plain(path)
    digest = hashlib.sha256(data).hexdigest()
    if path.suffix == ".json":
        return _of_json(read_json(data.decode("utf-8", "replace"), str(path)), path, digest)
    try:
        tensors = load_tensors(data) if path.suffix == ".safetensors" else _of_npz(data)
    except UNREADABLE as error:
        kind = path.suffix.removeprefix(".")
        why = f"{path} is no {kind} file of numbers, or is cut short: {_plain(error)}"
        raise InputError(why) from error
    for name, tensor in tensors.items():
        real = tensor.is_floating_point() or tensor.dtype in WHOLE
        require(real, f"{path}: {_plain(name)} holds {tensor.dtype}: expected numbers")
    return _of_tensors(tensors, path, digest)


UNREADABLE = (
    SafetensorError,
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    TypeError,  # types that torch has not
    OSError,
    EOFError,
    KeyError,
    NotImplementedError,  # ways to compress
    RuntimeError,  # passwords
    MemoryError,
)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _of_npz(data: bytes) -> dict[str, Tensor]:
    """Arrays of an archive, none larger than what is there of it."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        whole = sum(member.file_size for member in archive.infolist())
        require(whole <= LARGEST_FILE, f"an archive of {whole:,} bytes: at most {LARGEST_FILE:,}")
        for member in archive.infolist():
            with archive.open(member) as file:
                array = _array(file, member.file_size)
            found[member.filename.removesuffix(".npy")] = torch.from_numpy(array)
    return found


def _array(file: Any, n_bytes: int) -> np.ndarray:
    """An array whose header says no more than its bytes hold: numpy makes room by the header."""
    version = np.lib.format.read_magic(file)
    first = np.lib.format.read_array_header_1_0
    header = first if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, kind = header(file)
    require(kind.kind in "fiu", f"an array of {kind}: expected numbers")
    size = math.prod(shape)
    require(size * kind.itemsize <= n_bytes, f"an array of shape {shape} in {n_bytes} bytes")
    held = np.frombuffer(file.read(size * kind.itemsize), dtype=kind, count=size)
    order: Any = "F" if by_columns else "C"
    return held.astype(np.float64).reshape(shape, order=order)


def _plain(text: object) -> str:
    """What a file says, on one line and cut where it is long."""
    return " ".join(shown(text).split())


def save_atoms(
    path: str | Path, atoms: Mapping[str, Any], *, weights: Sequence[float] | Any = None
) -> Path:
    """Write atoms to a file that `mixture(FILE)`, `hmm(FILE)` and `open_process` read again.

    An atom is a kernel (contexts x tokens), or a hidden Markov model: its operators (states x
    tokens x states), or these and a start law as a pair. Anything that numpy makes an array of will
    do. `weights` are in the order of the atoms; equal if there are none. The ending of the name
    says what is written: safetensors, npz or JSON.

    >>> import tempfile
    >>> file = tempfile.mkdtemp() + "/coins.json"
    >>> _ = save_atoms(file, {"fair": [[0.5, 0.5]], "bent": [[0.9, 0.1]]}, weights=[0.8, 0.2])
    >>> from posteer import open_process
    >>> open_process(f"mixture({file})").names
    ('fair', 'bent')
    """
    where = path_of(path, "file of atoms")
    known = ", ".join(SUFFIXES)
    require(where.suffix in SUFFIXES, f"{where}: expected a name that ends with one of {known}")
    tables, starts = {}, {}
    for name, given in atoms.items():
        good = isinstance(name, str) and name not in ("", WEIGHTS) and not name.endswith(START)
        require(good, f"atom {_plain(name)!r}: expected another name")
        paired = isinstance(given, tuple) and len(given) == 2
        table = _any_array(given[0] if paired else given, f"atom {_plain(name)}")
        require(table.ndim in (2, 3), f"atom {_plain(name)}: {table.ndim} axes: expected 2 or 3")
        tables[name] = table
        if paired:
            starts[name] = _any_array(given[1], f"atom {_plain(name)}: start")
    own = None if weights is None else _any_array(weights, "weights")
    require(own is None or own.shape == (len(tables),), "weights: expected one for each atom")
    ordered = tuple(sorted(tables)) if where.suffix != ".json" else tuple(tables)
    at = torch.tensor([list(tables).index(name) for name in ordered], dtype=torch.long)
    held = AtomsInFile(
        ordered,
        tuple(tables[name] for name in ordered),
        tuple(starts.get(name) for name in ordered),
        None if own is None else validated_kernel(own, "weights")[at],
        "",
    )
    require(len(ordered) > 0, "no atoms: expected one or more")
    held.latents(str(where))
    write_atomically(where, _written(held, where.suffix))
    return where


def _any_array(given: Any, what: str) -> Tensor:
    plain = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
    try:
        return torch.from_numpy(np.array(plain, dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: expected lists of numbers, rows of one length") from error


def _written(held: AtomsInFile, suffix: str) -> bytes:
    if suffix == ".json":
        return json.dumps({"atoms": list(_as_json(held))}).encode()
    tensors = dict(zip(held.names, held.tables, strict=True))
    pairs = zip(held.names, held.starts, strict=True)
    tensors |= {f"{name}{START}": start for name, start in pairs if start is not None}
    if held.weights is not None:
        tensors[WEIGHTS] = held.weights
    if suffix == ".safetensors":
        return save_tensors({name: one.contiguous() for name, one in tensors.items()})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in tensors.items():
            plain = io.BytesIO()
            np.lib.format.write_array(plain, one.numpy())
            archive.writestr(f"{name}.npy", plain.getvalue())
    return packed.getvalue()


def _as_json(held: AtomsInFile) -> Iterator[dict[str, Any]]:
    for at, (name, table) in enumerate(zip(held.names, held.tables, strict=True)):
        start = held.starts[at]
        yield {
            "name": name,
            "kernel" if table.ndim == 2 else "operators": table.tolist(),
            **({} if start is None else {"start": start.tolist()}),
            **({} if held.weights is None else {"weight": float(held.weights[at])}),
        }


def _of_tensors(tensors: dict[str, Tensor], path: Path, digest: str) -> AtomsInFile:
    weights = tensors.pop(WEIGHTS, None)
    starts = {name: one for name, one in tensors.items() if name.endswith(START)}
    names = tuple(sorted(set(tensors) - set(starts)))
    require(len(names) > 0, f"{path}: no table in it, expected one for each atom")
    require(len(names) <= MOST_ATOMS, f"{path}: {len(names)} atoms: at most {MOST_ATOMS}")
    for name in names:
        axes = tensors[name].ndim
        require(
            axes in (2, 3),
            f"{path}: {_plain(name)} has {axes} axes: expected 2 (contexts x tokens) or 3 "
            "(states x tokens x states)",
        )
    strange = sorted(name for name in starts if name.removesuffix(START) not in names)
    require(not strange, f"{path}: {_plain(strange and strange[0])} is the start of nothing")
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
    known = ("name", "weight", "kernel", "operators", "start")
    said = ", ".join(known)
    require(len(atoms) <= MOST_ATOMS, f"{path}: {len(atoms)} atoms: at most {MOST_ATOMS}")
    tables, starts, weights = [], [], []
    for at, atom in enumerate(atoms):
        name = f"{path}: atom {at}"
        strange = sorted(set(atom) - set(known))
        require(not strange, f"{name} has '{_plain(strange and strange[0])}': expected {said}")
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
