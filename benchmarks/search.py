"""One iteration of GCG on the urn transformer at length 50, against other ways to do it.

    python benchmarks/search.py [--candidates 25] [--repeats 3]

ours: one pass over the prompt and the tree of its 16 continuations, per candidate.
direct: each of a candidate's 16 continuations as a sequence of its own, batched all the same.
nanoGCG and TROPT, where they are installed: their own evaluation of candidates on the same network
(`peers.py`). Values agree in the same run; the gradient is part of ours and direct.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from peers import HORIZON, installed
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

LENGTH = 50


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
    peers, missing = installed(model)
    for name, peer in peers.items():
        assert torch.allclose(peer(candidates), reference, atol=1e-5), name
        taken = milliseconds(partial(peer, candidates), given.repeats)
        print(f"  {name:25} {taken:9.0f} ms   {taken / mine:.1f} times ours (no gradient)")
    print("".join(f"  {line}\n" for line in missing), end="")
    tokens = (len(candidates) + 2) * field.price
    print(
        f"  tokens read by ours {tokens:,}, by the others {16 * len(candidates) * (LENGTH + 4):,}"
    )


if __name__ == "__main__":
    main()
