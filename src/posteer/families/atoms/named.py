"""Finite priors by name: machines given as text or in a file, presets, and mixtures of those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, InputError, Spec, integer, number, require
from posteer.core.spec import shown, within
from posteer.families.atoms.files import (
    SUFFIXES,
    array_of,
    machine_of,
    read_atoms,
)
from posteer.families.atoms.prior import AtomPrior
from posteer.families.atoms.side_by_side import side_by_side
from posteer.families.finite_state.machines import StateLatents, padded
from posteer.families.protocol import FinitePrior
from posteer.families.registry import open_process

MOST_STATES = 1000


def hmm(spec: Spec) -> AtomPrior:
    """`hmm([[[..]]],start=[..])`: operators, states x tokens x states; several are a mixture, with
    `starts=[[..],[..]]` and `weights=[..]`. `hmm(file.json)`: from a file."""
    given = Spec(spec.name, (), spec.keywords).take(start=None, starts=None, weights=None)
    if is_file(spec):
        require(given["start"] is None and given["starts"] is None, "hmm: the file has the starts")
        return from_file(spec, given["weights"])
    require(len(spec.arguments) > 0, "hmm: expected operators, as in hmm([[[0.5,0],[0,0.5]],..])")
    tables = [array_of(one, 3, "hmm: operators") for one in spec.arguments]
    starts: list[Tensor | None] = [None] * len(tables)
    if given["starts"] is not None or given["start"] is not None:
        laws = given["starts"] if given["starts"] is not None else [given["start"]]
        require(
            (isinstance(laws, list) and len(laws) == len(tables) and given["start"] is None)
            or (given["starts"] is None and len(tables) == 1),
            f"hmm: expected starts=[[..],..], one for each of {len(tables)}",
        )
        starts = [array_of(one, 1, "hmm: start") for one in laws]
    machines = [machine_of(*pair, "hmm") for pair in zip(tables, starts, strict=True)]
    return _mixture(machines, given["weights"], "hmm")


def mess3(spec: Spec) -> AtomPrior:
    """`mess3(x=0.15,a=0.6)`: three states, left for each other one with probability `x`; moving to
    state j emits token j with probability `a`, else one of the others. Lists are a mixture."""
    given = spec.take(("x", "a"), x=0.15, a=0.6, weights=None)
    xs, as_ = _listed(given["x"], "mess3: x"), _listed(given["a"], "mess3: a")
    n = max(len(xs), len(as_))
    require({len(xs), len(as_)} <= {1, n}, f"mess3: {len(xs)} x and {len(as_)} a: expected as many")
    machines = []
    for x, a in zip(xs * (n // len(xs)), as_ * (n // len(as_)), strict=True):
        require(0 <= x <= 0.5, f"mess3: x {x:g}: expected 0 to 0.5")
        require(0 <= a <= 1, f"mess3: a {a:g}: expected 0 to 1")
        same = torch.eye(3, dtype=torch.float64)
        moves = same * (1 - 2 * x) + (1 - same) * x
        emits = same * a + (1 - same) * (1 - a) / 2
        operators = moves[:, None, :] * emits.T[None]
        machines.append(
            StateLatents(torch.full((1, 3), 1 / 3, dtype=torch.float64), operators[None])
        )
    weights = _weights(given["weights"])
    said = "" if weights is None else f",weights={weights.tolist()}"
    text = f"mess3(x={_said(xs)},a={_said(as_)}{said})"
    return AtomPrior.of(padded(machines), weights, text)


def rrxor(spec: Spec) -> AtomPrior:
    """`rrxor`: two random bits, then their exclusive or, over and over, from an unknown phase."""
    spec.take()
    operators = torch.zeros(5, 2, 5, dtype=torch.float64)
    for bit in range(2):
        operators[0, bit, 1 + bit] = 0.5
        for other in range(2):
            operators[1 + bit, other, 3 + (bit ^ other)] = 0.5
        operators[3 + bit, bit, 0] = 1.0
    return AtomPrior.of(machine_of(operators, None, "rrxor"), None, "rrxor")


def sticky(spec: Spec) -> AtomPrior:
    """`sticky(states=3,vocab=3,stay=0.9,sharp=0.8)`: a state is kept with probability `stay`, else
    left for another at random; state s emits token s (modulo the vocabulary) with probability
    `sharp`, else another."""
    given = spec.take(states=3, vocab=3, stay=0.9, sharp=0.8)
    n = within(integer(given["states"], "states"), "sticky: states", 2, MOST_STATES)
    vocab = within(integer(given["vocab"], "vocab"), "sticky: vocab", 2, MOST_STATES)
    stay, sharp = number(given["stay"], "stay"), number(given["sharp"], "sharp")
    for name, chance in (("stay", stay), ("sharp", sharp)):
        require(0 <= chance <= 1, f"sticky: {name} {chance:g}: expected 0 to 1")
    require(stay < 1, "sticky: stay 1: no other state could be reached")
    same = torch.eye(n, dtype=torch.float64)
    moves = same * stay + (1 - same) * (1 - stay) / (n - 1)
    own = torch.eye(vocab, dtype=torch.float64)[torch.arange(n) % vocab]
    emits = own * sharp + (1 - own) * (1 - sharp) / (vocab - 1)
    operators = emits[:, :, None] * moves[:, None, :]
    text = f"sticky(states={n},vocab={vocab},stay={stay},sharp={sharp})"
    return AtomPrior.of(machine_of(operators, None, "sticky"), None, text)


def atoms(spec: Spec) -> AtomPrior:
    """`atoms(mess3(0.15,0.6),coins(0.2,0.7),weights=[0.5,0.5])`: finite priors mixed into one."""
    given = Spec(spec.name, (), spec.keywords).take(weights=None)
    require(len(spec.arguments) > 0, "atoms: expected finite priors, as in atoms(mess3,rrxor)")
    found = [_finite(one) for one in spec.arguments]
    weights = _weights(given["weights"])
    n = len(found)
    shares = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights
    require(len(shares) == n, f"weights: {len(shares)} given for {n} priors")
    whole = torch.cat(
        [share * one.log_weights.exp() for share, one in zip(shares, found, strict=True)]
    )
    said = "" if weights is None else f",weights={weights.tolist()}"
    text = f"atoms({','.join(one.spec for one in found)}{said})"
    return AtomPrior.of(
        side_by_side([one.atoms for one in found]),
        whole,
        text,
        content=" ".join(filter(None, (one.content for one in found))),
    )


def _finite(given: Any) -> AtomPrior:
    require(isinstance(given, str), f"atoms: {shown(given)}: expected a prior such as mess3")
    prior: object = open_process(given)
    if not isinstance(prior, FinitePrior):
        raise InputError(f"atoms: '{shown(given)}' is no prior of finitely many latents")
    return prior.as_atoms()


def is_file(spec: Spec) -> bool:
    """Whether a specification names a file of atoms."""
    arguments = spec.arguments
    return len(arguments) == 1 and isinstance(arguments[0], str) and arguments[0].endswith(SUFFIXES)


def from_file(spec: Spec, weights: Any) -> AtomPrior:
    """All atoms of a file; weights that are given stand for its own."""
    path = Path(str(spec.arguments[0]))
    held = read_atoms(path)
    latents, order = held.latents(str(path))
    given = _weights(weights)
    own = held.weights if given is None else given
    if own is not None:
        require(len(own) == len(order), f"weights: {len(own)} given for {len(order)} atoms")
        own = own[torch.tensor(order)]
    said = "" if given is None else f",weights={given.tolist()}"
    names = tuple(held.names[at] for at in order)
    return AtomPrior.of(latents, own, f"{spec.name}({path}{said})", names, held.digest)


def _mixture(machines: list[StateLatents], weights: Any, name: str) -> AtomPrior:
    vocabs = sorted({one.family.vocab_size for one in machines})
    require(len(vocabs) == 1, f"{name}: machines over {vocabs} tokens: expected one vocabulary")
    given = _weights(weights)
    tables = ",".join(str(one.operators[0].tolist()) for one in machines)
    starts = [one.initial[0].tolist() for one in machines]
    said = "" if given is None else f",weights={given.tolist()}"
    return AtomPrior.of(padded(machines), given, f"{name}({tables},starts={starts}{said})")


def _weights(given: Any) -> Float[Tensor, "J"] | None:
    return None if given is None else array_of(given, 1, "weights")


def _listed(value: Any, what: str) -> list[float]:
    return [number(one, what) for one in (value if isinstance(value, list) else [value])]


def _said(values: list[float]) -> str:
    return str(values[0]) if len(values) == 1 else str(values).replace(" ", "")
