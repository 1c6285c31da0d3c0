"""What no prompt exceeds on independent Dirichlet rows, where classes are too many to try.

After a prompt with transition counts `n`, a continuation that comes to row `c` and has shown `r` of
it goes on by the law `(alpha + n + r)[c] / sum_v (alpha + n + r)[c, v]`, so J is a function of `n`
and the last context. For a box `lo <= n <= hi` of counts, let every moment of the continuation
choose counts of its own within the box. What it can make of gains `g` is the largest

    sum_v (alpha + r + n)_v g_v / sum_v (alpha + r + n)_v,

which has the best tokens filled up to `hi` one after another, the rest at `lo`, and stops where the
next token gains less than the mean: the largest of V + 1 ratios. Visits that were forgotten are
counts on the best token, which can only help. By backward induction this bounds J of every prompt
of the box, and is J itself once the box is a point and nothing was forgotten.

Branch and bound splits the box with the largest bound where its moments disagree most on what they
choose, or together choose more than a prompt has. Boxes are narrowed to what a walk can be: it has
all transitions of the prompt, leaves each context as often as it enters it, but for the ends, and
can go on to its last context from any other. A point that is left is the class of a prompt, though
of one that is allowed only as far as single tokens tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.core import Float, Int, Progress, phase
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.families.markov.dirichlet import DirichletRows
from posteer.goals.protocol import Utility
from posteer.methods.answers import Answer, Proof, StopReason
from posteer.methods.bounds.boxes import Boxes, Walks
from posteer.methods.bounds.odds import SLACK
from posteer.methods.bounds.unrolled import Layer, Unroller
from posteer.methods.protocol import Problem
from posteer.models.protocol import Can
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import count_transitions

MOST_NODES = 10_000
MOST_WORK = 2**24
"""Boxes x numbers that bounding one passes over, unless nodes are asked for: seconds."""

MOST_HELD = 2**26
"""Numbers that open boxes may hold."""

AT_ONCE = 64
"""Boxes that are split together."""


@dataclass(frozen=True, eq=False)
class _Choices:
    """What the moments of a layer choose within boxes: counts above `lo`, and laws."""

    gain: Float[Tensor, "K n V"]
    value: Float[Tensor, "K n"]
    counts: Float[Tensor, "K n V"]
    weight: Float[Tensor, "K n"]
    law: Float[Tensor, "K n V"]


def chosen(
    layer: Layer, prior: Float[Tensor, "C V"], boxes: Boxes, to_come: Float[Tensor, "K n"]
) -> _Choices:
    """The best that every moment can make of the boxes, given what is to come after it."""
    rows = layer.rows
    nothing = to_come.new_zeros(len(to_come), 1)
    gain = layer.reward + torch.cat([to_come, nothing], 1)[:, layer.after]
    order = gain.argsort(-1, descending=True)
    base = (prior[rows] + layer.seen) + boxes.lo[:, rows]
    base = base.scatter_add(
        -1, order[..., :1], torch.full_like(base[..., :1], float(layer.forgotten))
    )
    room = (boxes.most - boxes.lo.sum(-1)).clamp(min=0)[:, rows, None]
    width = (boxes.hi - boxes.lo)[:, rows].gather(-1, order)
    filled = torch.cat([torch.zeros_like(room), width.cumsum(-1).minimum(room)], -1)
    added = filled.diff(dim=-1)
    extra = (added * gain.gather(-1, order)).cumsum(-1)
    extra = torch.cat([torch.zeros_like(room), extra], -1)
    weights = base.sum(-1, keepdim=True) + filled
    value, at = (((base * gain).sum(-1, keepdim=True) + extra) / weights).max(-1)
    taken = added.masked_fill(torch.arange(added.shape[-1]) >= at[..., None], 0.0)
    counts = torch.zeros_like(taken).scatter(-1, order, taken)
    weight = weights.gather(-1, at[..., None])[..., 0]
    return _Choices(gain, value, counts, weight, (base + counts) / weight[..., None])


class RowsBound:
    """One search for what no allowed prompt of a length exceeds."""

    def __init__(
        self,
        prior: DirichletRows,
        utility: Utility,
        horizon: int,
        length: int,
        allowed: AllowedPrompts | None = None,
    ) -> None:
        self.prior, self.unroller = prior, Unroller(prior.space, utility, horizon)
        self.walks = Walks(prior, length, self.unroller.tail.order, allowed)
        self._layers: dict[int, list[Layer] | None] = {}
        self.nodes, self.interrupted = 0, False

    def value(self, prompt: Int[Tensor, "m"]) -> float | None:
        """J of a prompt, or what it is no less than where moments forget; None if it is too much
        work."""
        head = torch.tensor(self.prior.head, dtype=torch.long)
        counts = count_transitions(self.prior.space, torch.cat([head, prompt]))[None]
        context = torch.tensor(self.prior.context, dtype=torch.long)
        last = self.unroller.tail.suffix(torch.cat([context, prompt])[None])
        layers = self._unrolled(int(last)) if self.unroller.possible else None
        if layers is None:
            return None
        none = torch.zeros(1, dtype=torch.float64)
        point = Boxes(last, counts, counts, counts.sum(-1), none, last, none)
        to_come = none[:, None][:, :0]
        for layer in reversed(layers):  # the best of losses is the least of gains
            loss = replace(layer, reward=-layer.reward)
            to_come = chosen(loss, self.prior.concentration, point, to_come).value
        return -float(to_come)

    def proof(
        self,
        value: float,
        gap: float = 1e-9,
        nodes: int | None = None,
        progress: Progress | None = None,
    ) -> Proof | None:
        """What no prompt exceeds, beside a prompt of J `value`; None where it is too much work.

        Boxes are split until the bound is within `gap`, or `nodes` boxes were bounded; on Ctrl-C
        the bound so far is given.
        """
        lasts = self.walks.lasts()
        if not self.unroller.possible or not self._affordable(lasts):
            return None
        most = self._most_nodes(int(lasts[0])) if nodes is None else nodes
        open_boxes = self._bounded(self.walks.narrowed(self.walks.whole()))
        held = 2 * self.prior.concentration.numel()
        try:
            while self._worth(open_boxes, value + gap) and self.nodes < most:
                if len(open_boxes) * held > MOST_HELD:
                    break
                if progress is not None:
                    progress("bounding prompts", min(self.nodes, most), most)
                open_boxes = self._split(open_boxes, value)
        except KeyboardInterrupt:
            self.interrupted = True
        bound = max(value, float(open_boxes.bound.max()) if len(open_boxes) else value)
        return None if math.isinf(bound) else Proof(bound, bound - value, self.nodes)

    def _affordable(self, lasts: Int[Tensor, "K"]) -> bool:
        first = self._unrolled(int(lasts[0]))
        if first is None:
            return False
        one = self.prior.concentration.numel() + sum(layer.reward.numel() for layer in first)
        return len(lasts) * one <= MOST_WORK

    def _most_nodes(self, last: int) -> int:
        layers = self._unrolled(last)
        assert layers is not None
        one = self.prior.concentration.numel() + sum(layer.reward.numel() for layer in layers)
        return min(MOST_NODES, MOST_WORK // one)

    @staticmethod
    def _worth(boxes: Boxes, level: float) -> bool:
        """Whether splitting the box with the largest bound may lower the bound of all."""
        if not len(boxes):
            return False
        best = int(boxes.bound.argmax())
        return float(boxes.bound[best]) > level and int(boxes.entry[best]) >= 0

    def _split(self, boxes: Boxes, value: float) -> Boxes:
        """The boxes with the largest bounds in two each, and those not better than `value` gone."""
        order = boxes.bound.argsort(descending=True)
        best, rest = boxes.select(order[:AT_ONCE]), boxes.select(order[AT_ONCE:])
        whole = best.select(best.entry < 0)
        best = best.select(best.entry >= 0)
        shape, every = best.lo.shape, torch.arange(len(best))
        lower, upper = best.hi.flatten(1).clone(), best.lo.flatten(1).clone()
        lower[every, best.entry], upper[every, best.entry] = best.cut, best.cut + 1
        halves = [
            Boxes(
                best.last,
                lo.view(shape),
                hi.view(shape),
                best.most,
                best.bound,
                best.entry,
                best.cut,
            )
            for lo, hi in ((best.lo, lower), (upper, best.hi))
        ]
        found = self._bounded(self.walks.narrowed(Boxes.join(halves)))
        kept = Boxes.join([rest, whole, found])
        return kept.select(kept.bound > value + 2 * SLACK * max(1.0, abs(value)))

    def _unrolled(self, last: int) -> list[Layer] | None:
        if last not in self._layers:
            self._layers[last] = self.unroller.layers(last)
        return self._layers[last]

    def _bounded(self, boxes: Boxes) -> Boxes:
        """Boxes with bounds of their own, no larger than those they had."""
        self.nodes += len(boxes)
        parts = []
        for last in boxes.last.unique().tolist():
            own = boxes.select(boxes.last == last)
            layers = self._unrolled(last)
            if layers is None:
                parts.append(own)
                continue
            widest = max(layer.reward.numel() for layer in layers)
            at_once = max(1, NUMBERS_AT_ONCE // (8 * widest * len(layers)))
            for rows in torch.arange(len(own)).split(at_once):
                parts.append(self._bounded_together(layers, own.select(rows)))
        return Boxes.join(parts) if parts else boxes

    def _bounded_together(self, layers: list[Layer], boxes: Boxes) -> Boxes:
        to_come = boxes.bound.new_zeros(len(boxes), 0)
        choices = []
        for layer in reversed(layers):
            choices.append(chosen(layer, self.prior.concentration, boxes, to_come))
            to_come = choices[-1].value
        bound = to_come[:, 0] + SLACK * to_come[:, 0].abs().clamp(min=1.0)
        entry, cut = self._where_to_split(layers, choices[::-1], boxes)
        return Boxes(
            boxes.last,
            boxes.lo,
            boxes.hi,
            boxes.most,
            bound.minimum(boxes.bound),
            entry,
            cut,
        )

    def _where_to_split(
        self, layers: list[Layer], choices: list[_Choices], boxes: Boxes
    ) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
        """The entry whose choices are, together, furthest from any that all moments could share."""
        reach = torch.ones(len(boxes), 1, dtype=torch.float64)
        reached, wanted = [], torch.zeros_like(boxes.lo)
        visits = boxes.lo.new_zeros(boxes.most.shape)
        for layer, made in zip(layers, choices, strict=True):
            reach = reach[:, : len(layer.rows)]
            reached.append(reach)
            visits.index_add_(1, layer.rows, reach)
            wanted.index_add_(1, layer.rows, reach[..., None] * made.counts)
            flow = (reach[..., None] * made.law).flatten(1)
            n_after = int(layer.after.max()) + 1
            reach = flow.new_zeros(len(flow), n_after).index_add_(1, layer.after.flatten(), flow)
        shared = wanted / visits.clamp(min=1e-300)[..., None]
        left = self.walks.steps - boxes.lo.sum((1, 2))
        scale = left / shared.sum((1, 2)).clamp(min=1e-300)
        shared = shared * scale.clamp(max=1.0)[:, None, None]
        lost = torch.zeros_like(shared)
        for layer, made, here in zip(layers, choices, reached, strict=True):
            slope = (made.gain - made.value[..., None]).abs() * (here / made.weight)[..., None]
            off = (made.counts - shared[:, layer.rows]).abs()
            lost.index_add_(1, layer.rows, slope * off)
        width = boxes.hi - boxes.lo
        ranked = torch.where(width > 0, lost + 1e-12 * width * (visits[..., None] + 1e-9), -1.0)
        most, entry = ranked.flatten(1).max(1)
        entry = torch.where(most > 0, entry, -1)
        at = entry.clamp(min=0)[:, None]
        low, high, some = (
            table.flatten(1).gather(1, at)[:, 0] for table in (boxes.lo, boxes.hi, shared)
        )
        return entry, (low + some).floor().minimum(high - 1).maximum(low)


GAP = 1e-9
"""How near its bound an answer is taken for the best."""


def with_proof(problem: Problem, answer: Answer, progress: Progress | None = None) -> Answer:
    """An answer with what no allowed prompt exceeds, where the model is exact Bayes on independent
    Dirichlet rows and that is not too much work; else the answer as it is."""
    prior = problem.model.prior
    if Can.EXACT not in problem.model.can or not isinstance(prior, DirichletRows):
        return answer
    request = problem.request
    gap = GAP if request.gap is None else request.gap
    with phase("bound"):
        search = RowsBound(
            prior, problem.expected, problem.horizon, problem.length, problem.allowed
        )
        value = search.value(answer.prompt)
        proof = None if value is None else search.proof(value, gap, request.nodes, progress)
    if proof is None:
        return answer
    reason = StopReason.INTERRUPTED if search.interrupted else answer.stop_reason
    return replace(answer, proof=proof, stop_reason=reason)
