"""A bank of latents drawn once and used for every utility, and its file.

One safetensors file: kernels, the counts they were read off, counts at earlier lengths, and in the
metadata where they came from, with a SHA-256 of the tensors. A file that was cut short, altered or
written by something else is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from posteer.banks.probes import Probe
from posteer.core import Float, InputError, Int, require
from posteer.core.device import undisturbed
from posteer.core.files import path_of, write_atomically
from posteer.core.randomness import numpy_stream
from posteer.core.reading import read_json
from posteer.core.showing import Shown
from posteer.core.spec import number, shown
from posteer.families.markov.family import Lifted, MarkovLatents, kernels_of, markov_space
from posteer.families.protocol import Counted, Described, Fittable, Latents, Prior
from posteer.families.registry import FAMILIES, fingerprint
from posteer.models.protocol import Model
from posteer.tokens.contexts import ContextSpace

FORMAT = "posteer-bank-1"
DEFAULT_FAMILY = "markov"
"""What latents are where a file does not say."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the latents of a bank came from and what they cost.

    `source` is `analytic` (drawn from the process) or `rollouts` (predictive Monte Carlo).
    `context` is what the model had observed: empty for a prior, else the bank is a posterior.
    `tokens` is what drawing the bank asked of the model. `family` is what its latents were asked to
    be, empty where they are what the model says.
    """

    source: str
    model: str
    fingerprint: str
    process: str | None
    seed: int
    rollout_length: int | None = None
    context: tuple[int, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    device: str = "cpu"
    created: str = ""
    version: str = ""
    family: str = ""


TEXTS = {"source", "model", "fingerprint", "device", "created", "version", "family"}


def _require_origin(facts: Mapping[str, Any], vocab_size: int) -> None:
    """Refuse an origin whose fields are not what we write: whoever reads them takes them so."""
    for name, value in facts.items():
        match name:
            case "process":
                good = value is None or type(value) is str
            case "seed":
                good = type(value) is int
            case "tokens" | "rollout_length":
                good = type(value) is int and value >= 0
                good = good or (name == "rollout_length" and value is None)
            case "seconds":
                good = type(value) is float and 0 <= value < math.inf
            case "context":
                good = isinstance(value, tuple | list) and all(
                    type(token) is int and 0 <= token < vocab_size for token in value
                )
            case _:
                good = name in TEXTS and type(value) is str
        require(good, f"its origin has {name} {shown(value)}: not what is written there")


class Bank:
    """Latents that methods work on: as they were drawn, or weighed by what was observed since.

    `drawn` is the bank as it was drawn, `observed` the counts of what came after, None if nothing.
    `exact`: they are all latents there are, and weigh as `log_weights` says. `temper` is the power
    of the likelihood that they are weighed by: 1 of a filter.
    """

    exact: bool = False
    latents: Latents
    origin: Origin
    drawn: LatentBank
    observed: Float[Tensor, "C V"] | None
    log_weights: Float[Tensor, "L"] | None
    temper: float = 1.0

    def lifted(self, order: int, head: tuple[int, ...] = ()) -> Lifted:
        """The latents as kernels of a higher order, for prompts behind a head."""
        return self.markov.lifted(order, head)

    def __len__(self) -> int:
        return len(self.latents)

    @property
    def tokens(self) -> int:
        """What drawing it asked of the model."""
        return self.origin.tokens

    @property
    def markov(self) -> MarkovLatents:
        """The latents as kernels; refused where they are of another family."""
        space = markov_space(self.latents.family, f"a bank of {self.origin.model}")
        return MarkovLatents(space, kernels_of(self.latents))

    @property
    def space(self) -> ContextSpace:
        return self.markov.space

    @property
    def kernels(self) -> Float[Tensor, "L C V"]:
        return self.markov.kernels


@dataclass(frozen=True, eq=False)
class LatentBank(Bank, Shown):
    """Latents of a prior or posterior as they were drawn, with their provenance.

    `counts` are the statistics of each rollout, `snapshots` those at earlier lengths, `unvisited`
    names the treatment of what a rollout never reached; a bank drawn from a prior has none of them.
    `smoothing` is what was added to each count. `probe` is what a model that may change predicted
    then, `read` what one that is no declared filter says along some histories (`banks.reading`);
    `reused` says that nothing was drawn where drawing was asked for: the bank was there.
    """

    latents: Latents
    origin: Origin
    unvisited: str = "none"
    counts: Int[Tensor, "L ..."] | None = None
    snapshots: dict[int, Int[Tensor, "L ..."]] = field(default_factory=dict)
    sequences: Int[Tensor, "L R"] | None = None
    probe: Probe | None = None
    reused: bool = False
    read: Probe | None = None
    temper: float = 1.0
    smoothing: float = 0.0

    observed = None
    log_weights = None

    @property
    def drawn(self) -> LatentBank:  # type: ignore[override]
        return self

    def names(self, model: Model) -> bool:
        """Whether this is the model it says it was drawn from; not whether that has changed."""
        own = self.origin.fingerprint
        return own == model.fingerprint or (self.probe is None and own in model.formerly)

    def first(self, n: int) -> LatentBank:
        """Its first latents, as if so many had been drawn; the bank itself if it has no more."""
        family = self.latents.family
        if n >= len(self) or not isinstance(family, Fittable):
            return self
        return LatentBank(
            family.latents_of({name: one[:n] for name, one in self.latents.tensors().items()}),
            replace(self.origin, tokens=self.origin.tokens * n // len(self)),
            self.unvisited,
            None if self.counts is None else self.counts[:n],
            {length: counts[:n] for length, counts in self.snapshots.items()},
            None if self.sequences is None else self.sequences[:n],
            self.probe,
            read=self.read,
            temper=self.temper,
            smoothing=self.smoothing,
        )

    @property
    def n_unvisited(self) -> int:
        """Rows of kernels that no token was counted for; none where rollouts are kept whole."""
        if self.counts is None or not isinstance(self.latents.family, Counted):
            return 0
        return int((self.counts.sum(-1) == 0).sum())

    @property
    def rollouts(self) -> Int[Tensor, "L R"] | None:
        """The tokens of its rollouts, where it keeps them."""
        if self.sequences is not None or isinstance(self.latents.family, Counted):
            return self.sequences
        return self.counts

    def statistics(self) -> dict[str, Tensor]:
        """All counts, as they are called in its file."""
        whole = {} if self.counts is None else {"counts": self.counts}
        return whole | {f"counts_at_{length}": held for length, held in self.snapshots.items()}

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        family = self.latents.family
        tensors = self.latents.tensors() | self.statistics()
        if self.sequences is not None:
            tensors["sequences"] = self.sequences
        if self.probe is not None:
            tensors |= self.probe.tensors()
        if self.read is not None:
            tensors |= self.read.tensors("read")
        facts = {
            "vocab_size": family.vocab_size,
            "order": family.order,
            "unvisited": self.unvisited,
            "origin": asdict(self.origin),
        }
        if family.name != DEFAULT_FAMILY:
            facts["family"] = family.name
        if self.temper != 1:
            facts["temper"] = self.temper
        if self.smoothing != 0:
            facts["smoothing"] = self.smoothing
        if isinstance(family, Described):
            facts |= family.facts()
        write_atomically(path, pack(tensors, facts))


def pack(tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """A safetensors file that vouches for its own content."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"format": FORMAT, "facts": text, "sha256": _digest(tensors, text)}
    return save_tensors(tensors, metadata)


def unpack(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `pack` wrote, or a line that says what is wrong with the file."""
    require(path.is_file(), f"'{path}': no such bank")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(f"{path} is not a bank, or is cut short: {error}") from error
    require(metadata.get("format") == FORMAT, f"{path} is a safetensors file but not a bank")
    text = metadata.get("facts", "")
    whole = metadata.get("sha256") == _digest(tensors, text)
    require(whole, f"{path} is damaged: its SHA-256 is not the one it was written with")
    facts = read_json(text, f"{path}: its facts")
    require(isinstance(facts, dict), f"{path}: its facts are no table")
    return tensors, facts


def _digest(tensors: dict[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())  # of any type
    return digest.hexdigest()


@undisturbed()
def load_bank(path: str | Path | Any) -> LatentBank:
    """A bank from its file, verified; one that was cut short, altered or is none is refused.

    >>> from posteer.banks.shipped import FOLDER
    >>> len(load_bank(FOLDER / "beta-bernoulli.tuning.safetensors"))
    5000
    """
    path = path_of(path, "bank")
    tensors, facts = unpack(path)
    try:
        origin = dict(facts["origin"])
        family = FAMILIES[facts.get("family", DEFAULT_FAMILY)](facts)
        require(isinstance(family, Fittable), f"{family.name} latents are not kept in files")
        assert isinstance(family, Fittable)
        _require_origin(origin, family.vocab_size)
        unvisited = facts["unvisited"]
        named = type(unvisited) is str
        require(named, f"unvisited {shown(unvisited)}: expected the name of a treatment")
        held = LatentBank(
            family.latents_of(tensors),
            Origin(**origin | {"context": tuple(origin["context"])}),
            unvisited,
            tensors.get("counts"),
            {
                int(name.removeprefix("counts_at_")): counts
                for name, counts in tensors.items()
                if name.startswith("counts_at_")
            },
            tensors.get("sequences"),
            Probe.of(tensors),
            read=Probe.of(tensors, "read"),
            temper=number(facts.get("temper", 1.0), "temper"),
            smoothing=number(facts.get("smoothing", 0.0), "smoothing"),
        )
        bank = sound_bank(held)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a whole bank: {error}") from error
    return bank


def open_bank(given: LatentBank | str | Path | Any) -> LatentBank:
    """A bank that is given, verified as one from a file is."""
    return sound_bank(given) if isinstance(given, LatentBank) else load_bank(given)


def sound_latents(latents: Latents, more: dict[str, Tensor] | None = None) -> Latents:
    """Latents that their family vouches for, with `more` that a bank holds; the same if sound."""
    family = latents.family
    if not isinstance(family, Fittable):
        return latents
    own = latents.tensors()
    sound = family.latents_of(own | (more or {}))
    found = sound.tensors()
    return latents if all(found[name] is tensor for name, tensor in own.items()) else sound


def sound_bank(bank: LatentBank) -> LatentBank:
    """The bank, refused where its latents are no laws or its parts do not belong together."""
    size, vocab = len(bank), bank.latents.family.vocab_size
    require(size >= 2, f"{size} latents, expected at least 2")
    _require_origin(asdict(bank.origin), vocab)
    for name, counts in bank.statistics().items():
        _require_whole(counts, name)
        require(len(counts) == size, f"{name} of {len(counts)} rollouts for {size} latents")
    tokens = [] if bank.sequences is None else [bank.sequences]
    for probe in (bank.probe, bank.read):
        if probe is None:
            continue
        kept, laws = probe.tokens, probe.laws
        fits = kept.ndim == 2 and laws.shape == (len(kept), kept.shape[1] + 1, vocab)
        require(fits, "the laws that it keeps do not belong to its histories")
        tokens.append(kept)
    require(0 < bank.temper < math.inf, f"temper {bank.temper:g}: expected more than 0")
    require(0 <= bank.smoothing < math.inf, f"smoothing {bank.smoothing:g}: expected 0 or more")
    for held in tokens:
        _require_whole(held, "tokens")
        require(not bool((held >= vocab).any()), f"it holds tokens past {vocab - 1}")
    latents = sound_latents(bank.latents, bank.statistics())
    return bank if latents is bank.latents else replace(bank, latents=latents)


def _require_whole(numbers: Tensor, name: str) -> None:
    whole = numbers.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    require(whole, f"{name} of {numbers.dtype}: expected whole numbers")
    require(not bool((numbers < 0).any()), f"{name} below 0")


def draw_analytic(
    prior: Prior,
    n_samples: int,
    seed: int,
    held_out: bool = False,
    context: tuple[int, ...] = (),
) -> LatentBank:
    """Latents drawn from the prior itself: the paper's (analytic) variants.

    `held_out` draws others for the same seed, to check what was tuned on the first. A prior that
    is a posterior names the `context` it is the posterior of.
    """
    require(n_samples >= 2, f"{n_samples} latent samples: expected at least 2")
    purpose = "held-out-analytic-bank" if held_out else "analytic-bank"
    latents = prior.sample(n_samples, numpy_stream(seed, purpose))
    origin = Origin(
        source="analytic",
        model="exact",
        fingerprint=fingerprint(prior),
        process=prior.spec,
        seed=seed,
        context=context,
    )
    return LatentBank(latents, origin)
