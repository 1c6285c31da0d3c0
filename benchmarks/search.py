"""One iteration of GCG on the urn transformer at length 50, against two other ways to do it.

    python benchmarks/search.py [--candidates 25] [--repeats 3]

ours: one pass over the prompt and the tree of its 16 continuations, per candidate.
direct: each of a candidate's 16 continuations as a sequence of its own, batched all the same.
nanoGCG, where it is installed: its own evaluation of candidates (one target string at a time, so 16
calls) on the same network. Values agree in the same run; the gradient is part of ours and direct.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import torch
from timing import milliseconds
from torch import Tensor

from posteer.goals.dyck import Dyck
from posteer.goals.objectives import ExpectedUtility
from posteer.methods.direct.coordinate import single_substitutions
from posteer.methods.direct.field import Field
from posteer.methods.protocol import Request, pose
from posteer.models import load
from posteer.models.transformer.model import TransformerModel
from posteer.tokens.contexts import all_sequences

LENGTH, HORIZON = 50, 4


def ours(field: Field, prompt: Tensor, candidates: Tensor) -> Tensor:
    field.gradients(torch.tensor([0]), prompt[None])
    return field.values(torch.zeros(len(candidates), dtype=torch.long), candidates)


def direct(model: TransformerModel, prompt: Tensor, candidates: Tensor) -> Tensor:
    """The same with whole sequences: 16 for the gradient, 16 for every candidate."""
    goal = ExpectedUtility(Dyck(), 2, HORIZON)
    context = torch.zeros(1, dtype=torch.long)
    tails = all_sequences(2, HORIZON)
    hot = torch.nn.functional.one_hot(prompt, 2).float().requires_grad_()
    rows = torch.cat([hot.expand(16, -1, -1), torch.nn.functional.one_hot(tails, 2).float()], 1)
    laws = model.log_predictive_of_rows(rows)[:, LENGTH:-1]
    logs = laws.gather(-1, tails[..., None]).squeeze(-1).sum(-1)
    torch.autograd.grad(goal.of_laws(logs[None], context)[0], hot)
    values = []
    for some in candidates.split(8):
        whole = torch.cat([some.repeat_interleave(16, 0), tails.repeat(len(some), 1)], 1)
        laws = model.log_predictive(whole)[:, LENGTH:-1]
        logs = laws.gather(-1, whole[:, LENGTH:, None]).squeeze(-1).sum(-1)
        values.append(goal.of_laws(logs.view(len(some), 16), context.expand(len(some))))
    return torch.cat(values)


def nanogcg_values(model: TransformerModel, candidates: Tensor) -> Tensor | None:
    """nanoGCG's loss of each candidate for each continuation, turned into the same J."""
    try:
        from nanogcg.gcg import GCG
    except ImportError:
        return None
    network = model.network

    def forward(inputs_embeds: Tensor) -> Any:
        return SimpleNamespace(logits=network.logits(network._after_bos(inputs_embeds))[:, 1:])

    attack = object.__new__(GCG)
    attack.model, attack.prefix_cache = forward, None
    attack.config = SimpleNamespace(use_mellowmax=False, early_stop=False)
    logs = []
    with torch.no_grad():
        for tail in all_sequences(2, HORIZON):
            attack.target_ids = tail[None]
            whole = torch.cat([candidates, tail.expand(len(candidates), -1)], 1)
            loss = attack._compute_candidates_loss_original(128, network.tokens(whole))
            logs.append(-HORIZON * loss)
    goal = ExpectedUtility(Dyck(), 2, HORIZON)
    return goal.of_laws(torch.stack(logs, 1), torch.zeros(len(candidates), dtype=torch.long))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    model = load("urn")
    asked = Request(model=model, utility=Dyck(), length=LENGTH, horizon=HORIZON)
    field = Field(pose([asked]))
    prompt = torch.randint(2, (LENGTH,), generator=torch.Generator().manual_seed(0))
    candidates = single_substitutions(prompt, 2)[: given.candidates]
    reference = ours(field, prompt, candidates)
    assert torch.allclose(direct(model, prompt, candidates), reference, atol=1e-5)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"one GCG iteration, urn, length {LENGTH}, {len(candidates)} candidates, values equal")
    mine = milliseconds(lambda: ours(field, prompt, candidates), given.repeats)
    theirs = milliseconds(lambda: direct(model, prompt, candidates), given.repeats)
    print(f"  ours                      {mine:9.0f} ms")
    print(f"  16 sequences a candidate  {theirs:9.0f} ms   {theirs / mine:.1f} times ours")
    public = nanogcg_values(model, candidates)
    if public is None:
        print("  nanoGCG is not installed: not timed")
        return
    assert torch.allclose(public, reference, atol=1e-5)
    taken = milliseconds(lambda: nanogcg_values(model, candidates), given.repeats)
    print(
        f"  nanoGCG's evaluation      {taken:9.0f} ms   {taken / mine:.1f} times ours (no gradient)"
    )
    tokens = (len(candidates) + 2) * field.price
    print(
        f"  tokens read by ours {tokens:,}, by the others {16 * len(candidates) * (LENGTH + 4):,}"
    )


if __name__ == "__main__":
    main()
