"""Other people's evaluation of GCG's candidates, on our network.

Each has one target string at a time, so J is made of their losses of all 16 continuations. They are
installed by whoever wants their rows, TROPT in an environment of its own: it and nanoGCG ask for
different versions of transformers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from posteer.goals.dyck import Dyck
from posteer.goals.objectives import ExpectedUtility
from posteer.models.transformer.model import TransformerModel
from posteer.tokens.contexts import all_sequences

HORIZON, AT_ONCE = 4, 128

Losses = Callable[[Tensor], Tensor]
"""Of candidates, for every continuation: [16, candidates], means over tokens."""


def values_by(losses: Losses, candidates: Tensor) -> Tensor:
    """J of each candidate."""
    with torch.no_grad():
        logs = -HORIZON * losses(candidates).T
    goal = ExpectedUtility(Dyck(), 2, HORIZON)
    return goal.of_laws(logs, torch.zeros(len(candidates), dtype=torch.long))


class _Network(torch.nn.Module):
    """Ours, called as transformers' models are."""

    def __init__(self, model: TransformerModel) -> None:
        super().__init__()
        self.network = model.network

    def forward(self, inputs_embeds: Tensor, **_more: Any) -> Any:
        network = self.network
        return SimpleNamespace(logits=network.logits(network._after_bos(inputs_embeds))[:, 1:])


def nanogcg(model: TransformerModel) -> Losses:
    from nanogcg.gcg import GCG

    attack = object.__new__(GCG)
    attack.model, attack.prefix_cache = _Network(model), None
    attack.config = SimpleNamespace(use_mellowmax=False, early_stop=False)

    def losses(candidates: Tensor) -> Tensor:
        found = []
        for tail in all_sequences(2, HORIZON):
            attack.target_ids = tail[None]
            whole = torch.cat([candidates, tail.expand(len(candidates), -1)], 1)
            embedded = model.network.tokens(whole)
            found.append(attack._compute_candidates_loss_original(AT_ONCE, embedded))
        return torch.stack(found)

    gc.freeze()  # it collects garbage after every batch: what was there before is not looked at
    return losses


def tropt(model: TransformerModel) -> Losses:
    from tropt.common import Targets
    from tropt.loss import PrefillCELoss
    from tropt.model.huggingface.lm import LMHFModel, LMHFTokenInputManager

    place, tails = 2, all_sequences(2, HORIZON)
    tokenizer = SimpleNamespace(
        padding_side="left",
        pad_token_id=0,
        convert_tokens_to_ids=lambda _token: place,
        decode=str,
        batch_decode=lambda ids: [str(row) for row in ids.tolist()],
    )
    attacked = object.__new__(LMHFModel)
    attacked._model, attacked._forward_pass_batch_size = _Network(model), AT_ONCE
    attacked._token_input_manager = LMHFTokenInputManager(
        tokenizer=tokenizer,
        device=torch.device("cpu"),
        templates_ids=[[place]] * len(tails),
        embed_func=model.network.tokens,
        targets=Targets(target_response_toks=list(tails)),
    )
    loss = PrefillCELoss()
    return lambda candidates: attacked.compute_loss_from_tokens(candidates, loss, True)


PEERS: dict[str, tuple[Callable[[TransformerModel], Losses], str]] = {
    "nanoGCG": (nanogcg, "pip install nanogcg"),
    "TROPT": (tropt, "pip install torch==2.13.0 tropt, by Python 3.12, without nanoGCG"),
}


def installed(model: TransformerModel) -> tuple[dict[str, Callable[[Tensor], Tensor]], list[str]]:
    """J of candidates by each peer that is there, and a line for each that is not."""
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    missing = []
    for name, (peer, how) in PEERS.items():
        try:
            losses = peer(model)
        except Exception as error:  # TROPT 0.1.1 cannot be imported by Python 3.11
            missing.append(f"{name} is not timed ({str(error).splitlines()[0]}): {how}")
            continue
        found[name] = partial(values_by, losses)
    return found, missing
