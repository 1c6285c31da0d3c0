"""Model folders: `config.json`, `model.safetensors` (or parts), `manifest.json` with SHA-256.

Safetensors and JSON only, so reading a model runs no code. The manifest is sealed, and a file that
does not have the hash it gives is refused by name. Those of earlier versions have no seal.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from posteer.core.device import undisturbed
from posteer.core.errors import InputError, require
from posteer.core.files import read_plain, sha256, write_folder_atomically
from posteer.core.reading import read_json
from posteer.core.sealing import read_sealed, sealed
from posteer.families.protocol import Prior
from posteer.families.registry import open_process
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Architecture, Transformer
from posteer.models.transformer.one_layer import OneLayerModel, sees_counts_only

PART_BYTES = 12 * 2**20
"""Weights are split into files of at most about this size, so that they travel anywhere."""

FLOATS = ("F64", "F32", "F16", "BF16")
"""Types that weights may be kept in; they are read into float32."""

MANIFEST = "manifest.json"
_OURS = re.compile(r"config\.json|manifest\.json|(model|state)(-\d+-of-\d+)?\.safetensors")


def is_ours(name: str) -> bool:
    """Whether a file of a model or checkpoint folder is called so."""
    return _OURS.fullmatch(name) is not None


def split_tensors(tensors: dict[str, Tensor], stem: str = "model") -> dict[str, bytes]:
    """Safetensors files by name; one file unless the tensors are large."""
    groups: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if groups[-1] and size + tensor.nbytes > PART_BYTES:
            groups.append({})
            size = 0
        groups[-1][name] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
    if len(groups) == 1:
        return {f"{stem}.safetensors": save_tensors(groups[0])}
    return {
        f"{stem}-{i + 1}-of-{len(groups)}.safetensors": save_tensors(group)
        for i, group in enumerate(groups)
    }


def with_manifest(files: dict[str, bytes], facts: dict[str, Any]) -> dict[str, bytes]:
    """The files and a manifest that vouches for them."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = sealed({"files": hashes, **facts})
    text = json.dumps(manifest, indent=2, sort_keys=True, allow_nan=False) + "\n"
    return {**files, MANIFEST: text.encode()}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, after checking that every file it lists is whole."""
    path = folder / MANIFEST
    require(path.is_file(), f"{folder}: no {MANIFEST}, so not a model folder")
    manifest = read_sealed(path)
    listed = manifest.get("files")
    good = isinstance(listed, dict) and all(isinstance(one, str) for one in listed.values())
    require(good, f"{path} is damaged: it is not a manifest")
    assert isinstance(listed, dict)
    for name, digest in listed.items():
        require(is_ours(name), f"{path} lists '{name}', which is no file of a model")
        require((folder / name).is_file(), f"{folder / name} is missing")
        require(
            sha256(folder / name) == digest,
            f"{folder / name} is damaged: its SHA-256 is not the manifest's",
        )
    return manifest


def read_tensors(folder: Path, manifest: dict[str, Any], stem: str = "model") -> dict[str, Tensor]:
    """All tensors of a stem, whether in one file or in parts."""
    tensors: dict[str, Tensor] = {}
    for name in _weight_files(manifest, stem):
        try:
            tensors |= load_tensors(read_plain(folder / name))
        except SafetensorError as error:
            raise InputError(f"{folder / name} is damaged: {error}") from error
    return tensors


def _weight_files(manifest: dict[str, Any], stem: str = "model") -> list[str]:
    listed = sorted(manifest["files"])
    return [name for name in listed if name.startswith(stem) and name.endswith(".safetensors")]


def save_model(folder: Path, network: Transformer, facts: dict[str, Any]) -> None:
    """Write a model folder, whole or not at all."""
    files = {
        "config.json": (json.dumps(asdict(network.shape), indent=2) + "\n").encode(),
        **split_tensors(network.state_dict()),
    }
    write_folder_atomically(folder, with_manifest(files, facts), is_ours)


class _Undrawn(TorchFunctionMode):
    """Nothing is drawn only to be replaced. (Nor is a network built on torch's `meta` device, which
    loads torch's compiler: that takes longer than all else of opening a model.)"""

    def __torch_function__(
        self, call: Any, types: Any, given: Any = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if call in (init.normal_, init.uniform_, init.kaiming_uniform_):
            return given[0] if given else named["tensor"]
        return call(*given, **named)


def load_model(folder: Path, name: str | None = None) -> TransformerModel:
    """The model in a folder, verified; torch's own random numbers stay as they are."""
    manifest = read_manifest(folder)
    require("config.json" in manifest["files"], f"{folder / MANIFEST} lists no config.json")
    try:
        shape = Architecture(**read_json(read_plain(folder / "config.json"), "config.json"))
    except (ValueError, TypeError, OSError) as error:
        what = f": {error}" if isinstance(error, InputError) else ""
        where = folder / "config.json"
        raise InputError(f"{where} does not describe a transformer{what}") from error
    prior = _prior_of(folder, manifest, shape)
    _require_fit(folder, manifest, shape)
    with undisturbed(), torch.inference_mode(False):
        with _Undrawn():
            network = Transformer(shape)
        network.load_state_dict(read_tensors(folder, manifest))
    for weight, tensor in network.state_dict().items():
        finite = bool(tensor.isfinite().all())
        require(finite, f"{folder}: its weights {weight} are not all finite numbers")
    kind = OneLayerModel if sees_counts_only(network) else TransformerModel
    return kind(network, name or str(folder), prior)


def _prior_of(folder: Path, manifest: dict[str, Any], shape: Architecture) -> Prior | None:
    """The process that the model was trained to filter, where the manifest knows it."""
    known = manifest.get("process")
    if not isinstance(known, str):
        return None
    prior = open_process(known)
    theirs, own = prior.family, (shape.vocab_size, shape.order)
    require(
        (theirs.vocab_size, theirs.order) == own,
        f"{folder}: a transformer of vocabulary {own[0]} and order {own[1]} for the process "
        f"{known}, which has {theirs.vocab_size} and {theirs.order}",
    )
    return prior


def _require_fit(folder: Path, manifest: dict[str, Any], shape: Architecture) -> None:
    """Compare names and shapes in the headers of the files, before anything is built of them."""
    found: dict[str, tuple[int, ...]] = {}
    for name in _weight_files(manifest):
        try:
            with safe_open(folder / name, framework="pt") as file:
                for weight in file.keys():  # noqa: SIM118
                    part = file.get_slice(weight)
                    kind = str(part.get_dtype())
                    require(kind in FLOATS, f"{folder / name}: {weight} is {kind}, not numbers")
                    found[weight] = tuple(part.get_shape())
        except (SafetensorError, OSError) as error:
            raise InputError(f"{folder / name} is damaged: {error}") from error
    fits = len(found) == shape.n_weights and all(
        found.get(weight) == size for weight, size in shape.weights()
    )
    require(fits, f"{folder}: the weights do not fit the architecture")
