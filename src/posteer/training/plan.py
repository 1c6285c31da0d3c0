"""What to train: one frozen record per run, presets for the paper's two models and others."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.limits import MOST_SEED, MOST_TOKENS
from posteer.core.spec import meant, within
from posteer.families.registry import open_process
from posteer.models.transformer.network import Architecture

RANGES = {
    "batch": (1, 2**16),
    "length": (1, MOST_TOKENS),
    "steps": (1, 10**9),
    "warmup": (0, 10**9),
    "accumulate": (1, 2**16),
    "seed": (-MOST_SEED, MOST_SEED),
}
MOST_AT_ONCE = 2**26
"""Tokens of a batch."""
MOST_RATE = 100.0
"""Far past any that trains; the optimiser's float32 overflows later."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Everything that determines a training run's weights on a given machine."""

    process: str
    architecture: Architecture
    batch: int
    length: int
    steps: int
    warmup: int
    peak_rate: float = 3e-4
    final_rate: float = 1e-5
    weight_decay: float = 0.1
    clip: float = 1.0
    accumulate: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        space = open_process(self.process).family
        shape = self.architecture
        require(
            (shape.vocab_size, shape.order) == (space.vocab_size, space.order),
            f"architecture for vocabulary {shape.vocab_size} and order {shape.order}: the process "
            f"has {space.vocab_size} and {space.order}",
        )
        for name, (least, most) in RANGES.items():
            within(getattr(self, name), name, least, most)
        require(
            self.batch * self.length <= MOST_AT_ONCE,
            f"batch {self.batch} of length {self.length}: expected at most {MOST_AT_ONCE} tokens",
        )
        require(
            0 < self.final_rate <= self.peak_rate <= MOST_RATE,
            f"rates {self.peak_rate:g} to {self.final_rate:g}: expected 0 < final <= peak <= "
            f"{MOST_RATE:g}",
        )
        require(
            self.batch % self.accumulate == 0,
            f"batch {self.batch} cannot be split into {self.accumulate} parts",
        )
        require(
            shape.positions == "none" or self.length <= shape.max_tokens,
            f"length {self.length}: the architecture has positions for {shape.max_tokens}",
        )

    def rate(self, step: int) -> float:
        """Learning rate of a step (from 1): linear warm-up, then a cosine to the final rate."""
        if step <= self.warmup:
            return self.peak_rate * step / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        swing = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        return self.final_rate + (self.peak_rate - self.final_rate) * swing

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> TrainingPlan:
        return cls(**{**record, "architecture": Architecture(**record["architecture"])})


def _shape(vocab: int, order: int, *sizes: int, **rest: Any) -> Architecture:
    layers, width, heads, feedforward = sizes
    return Architecture(
        vocab_size=vocab,
        order=order,
        layers=layers,
        width=width,
        heads=heads,
        feedforward=feedforward,
        **rest,
    )


def _small(process: str, vocab: int, order: int) -> TrainingPlan:
    """A model past the paper's two: a fifth of the urn's size, for rollouts of the same length."""
    return TrainingPlan(
        process=process,
        architecture=_shape(vocab, order, 4, 128, 4, 512, positions="learned", max_tokens=2000),
        batch=64,
        length=2000,
        steps=24_000,
        warmup=1000,
        peak_rate=1e-3,
    )


def _finite(process: str, vocab: int, order: int = 0, steps: int = 6000) -> TrainingPlan:
    """A filter of finitely many latents, told apart within a hundred tokens: some ten to twenty
    minutes of one core."""
    return TrainingPlan(
        process=process,
        architecture=_shape(vocab, order, 2, 64, 4, 256, positions="learned", max_tokens=128),
        batch=32,
        length=128,
        steps=steps,
        warmup=200,
        peak_rate=2e-3,
        final_rate=2e-5,
    )


EIGHT_MESS3 = (
    "mess3(x=[0.05,0.1,0.15,0.2,0.05,0.1,0.15,0.2],a=[0.6,0.6,0.6,0.6,0.85,0.85,0.85,0.85])"
)

PRESETS = {
    "beta-bernoulli": TrainingPlan(
        process="beta-bernoulli",
        architecture=_shape(2, 0, 1, 64, 4, 128),
        batch=128,
        length=2000,
        steps=50_000,
        warmup=500,
    ),
    "urn": TrainingPlan(
        process="urn",
        architecture=_shape(2, 1, 8, 256, 8, 1024, positions="learned", max_tokens=2000),
        batch=64,
        length=2000,
        steps=100_000,
        warmup=1000,
    ),
    "ternary": _small("markov(vocab=3,order=1)", 3, 1),
    "second-order": _small("markov(vocab=2,order=2)", 2, 2),
    "mess3-mixture": _finite(EIGHT_MESS3, 3),
    "chains-16": _finite("chains(vocab=10,n=16,concentration=0.2)", 10, 1),
    "chains-1024": _finite("chains(vocab=10,n=1024,concentration=0.2)", 10, 1, steps=12_000),
    "ginc": _finite("ginc", 20),
    "tiny": TrainingPlan(
        process="beta-bernoulli",
        architecture=_shape(2, 0, 1, 32, 2, 64),
        batch=32,
        length=64,
        steps=500,
        warmup=50,
        peak_rate=3e-3,
        final_rate=1e-4,
    ),
}
"""The paper's two models (its app. bft_training), six past them, and one that trains in a minute
on two cores."""


def preset(name: str) -> TrainingPlan:
    """A plan by name."""
    if name not in PRESETS:
        raise InputError(
            f"unknown preset '{name}': {meant(name, PRESETS)}expected one of {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def make_plan(
    preset_name: str | None,
    process: str | None,
    architecture: dict[str, Any],
    settings: dict[str, Any],
) -> TrainingPlan:
    """A preset with changes, or a process with the tiny preset's settings; None means unchanged."""
    require(
        preset_name is None or process is None,
        "`preset` and `process` exclude each other: a preset has its own process",
    )
    require(
        preset_name is not None or process is not None,
        f"expected `preset` ({', '.join(PRESETS)}) or `process`",
    )
    base = preset(preset_name or "tiny")
    shape = {**asdict(base.architecture), **_given(architecture)}
    changes = _given(settings)
    if process is not None:
        space = open_process(process).family
        shape |= {"vocab_size": space.vocab_size, "order": space.order}
    shape["max_tokens"] = within(changes.get("length", base.length), "length", 1, MOST_TOKENS)
    require(
        shape["positions"] in ("none", "learned"),
        f"positions '{shape['positions']}': expected none or learned",
    )
    record = {**asdict(base), **changes, "process": process or base.process}
    return TrainingPlan(**{**record, "architecture": Architecture(**shape)})


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}
