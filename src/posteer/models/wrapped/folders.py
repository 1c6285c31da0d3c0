"""Language models in folders of Hugging Face's, and in GGUF files."""

from __future__ import annotations

import importlib
import importlib.util
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from posteer.core.errors import require
from posteer.core.spec import shown
from posteer.core.userfiles import users_own
from posteer.models.protocol import Model
from posteer.models.wrapped.alphabets import Tokenizer
from posteer.models.wrapped.huggingface import HuggingFaceModel

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Language(Model):
    """A language model that is not yet told over which of its tokens it is steered."""

    def __init__(
        self, network: Any, tokenizer: Tokenizer | None, name: str, order: int = 1
    ) -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.vocab_size, self._order = int(network.config.vocab_size), order

    def over(self, alphabet: Any, text: str | Any) -> Model:
        return HuggingFaceModel(
            self.network,
            tokenizer=self.tokenizer,
            alphabet=alphabet,
            text=text,
            order=self._order,
            name=self.name,
        )

    def to(self, device: str) -> Model:
        self.network.to(device)
        return self


def require_installed(*packages: str) -> None:
    """Refuse in one line where what reads language models is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    require(
        not missing,
        f"language models need {', '.join(missing)}, not installed here: pip install "
        "'posteer[llm]'",
    )


def from_text(text: str, device: str = "cpu") -> Model:
    """`hf:FOLDER`, or `hf:FILE.gguf`; `hf(bfloat16):FOLDER` computes in that precision."""
    kind, colon, where = text.partition(":")
    precision = precision_of(kind)
    path = Path(where)
    named = bool(colon) and bool(where) and "\0" not in where
    require(named, f"'{shown(text)}': expected hf: and a folder, or a file that ends in .gguf")
    require(path.exists(), f"'{shown(where)}': no such folder")
    require_installed("transformers", *(() if path.is_dir() else ("gguf", "accelerate")))
    network, tokenizer = load(path)
    return Language(network.to(precision), tokenizer, text).to(device)


def precision_of(kind: str) -> torch.dtype:
    """What a name says in brackets: single precision where it has none.

    >>> precision_of("smollm2(bfloat16)"), precision_of("hf")
    (torch.bfloat16, torch.float32)
    """
    name, bracket, inside = kind.partition("(")
    asked = inside.removesuffix(")").strip() if bracket else "float32"
    known = asked in PRECISIONS and inside.endswith(")") == bool(bracket)
    require(known, f"'{shown(kind)}': expected {name}({' or '.join(PRECISIONS)})")
    return PRECISIONS[asked]


def load(path: Path) -> tuple[Any, Tokenizer | None]:
    """Network and tokenizer of a folder or a GGUF file; only safetensors are read, and no code."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = (path, None) if path.is_dir() else (path.parent, path.name)
    given: dict[str, Any] = {"local_files_only": True}
    if file is not None:
        given["gguf_file"] = file
    weights = {} if file else {"use_safetensors": True}
    once = nullcontext() if file is None else _parsed_once()
    with users_own(f"'{path}'"), _quietly(), torch.random.fork_rng(devices=[]), once:
        network = AutoModelForCausalLM.from_pretrained(
            str(folder), **given, **weights, **_in_single_precision()
        )
        has_tokenizer = (
            file is not None or any(folder.glob("tokenizer*")) or any(folder.glob("vocab.*"))
        )
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **given) if has_tokenizer else None
    return network.eval(), tokenizer


def _in_single_precision() -> dict[str, Any]:
    """Version 5 has another word for it."""
    import transformers

    old = int(transformers.__version__.partition(".")[0]) < 5
    return {"torch_dtype" if old else "dtype": torch.float32}


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Fields of a GGUF file take seconds to parse, and are asked for four times."""
    gguf: Any = importlib.import_module("gguf")
    before = gguf.GGUFReader
    gguf.GGUFReader = lru_cache(before)
    try:
        yield
    finally:
        gguf.GGUFReader = before


@contextmanager
def _quietly() -> Iterator[None]:
    """Neither bars nor advice while something is loaded: what is wrong is raised."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # tqdm's, too
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
