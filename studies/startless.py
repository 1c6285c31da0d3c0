"""A transformer without a start token: its first token is drawn, and the second is foretold first.

`urns.py train --startless` trains one and looks at it as at the others. Weights, data, schedule and
positions are the same; nothing stands before the first token, whose law is the prior's, a half.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Transformer
from posteer.models.trees import continuation_tree
from posteer.training.data import HeldOut
from posteer.training.loop import Trainer
from posteer.training.plan import TrainingPlan


def laws_after(network: Transformer, tokens: Tensor) -> Tensor:
    """Logits of the next token after each token, none before the first."""
    return network.logits(network.tokens(tokens))


class StartlessHeldOut(HeldOut):
    """Held-out losses; at the first position that of the prior."""

    @torch.no_grad()
    def losses(self, network: Transformer, part: int = 64) -> Tensor:
        losses = []
        for tokens in self.tokens.split(part):
            logits = laws_after(network, tokens[:, :-1]).float()
            losses.append(
                torch.nn.functional.cross_entropy(
                    logits.transpose(1, 2), tokens[:, 1:], reduction="none"
                )
            )
        return torch.cat([self.exact[:, :1], torch.cat(losses).double().cpu()], 1)


class StartlessTrainer(Trainer):
    """The same training, but for the start token."""

    def __init__(self, plan: TrainingPlan, out: Path, *, held_out: int = 64, **named: Any) -> None:
        super().__init__(plan, out, held_out=held_out, **named)
        kept = (self.prior, held_out, plan.length, plan.seed, self.device)
        self.held_out = StartlessHeldOut(*kept)

    def _loss(self, tokens: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = laws_after(self.network, tokens[:, :-1])
        return torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten()
        )


class StartlessModel(TransformerModel):
    """What was trained so, as a model: rollouts, laws of continuations, and their gradients."""

    def _first(self, n: int) -> Tensor:
        law = torch.full((n, self.vocab_size), 1 / self.vocab_size, device=self.device)
        return law.log()

    @torch.no_grad()
    def start(self, batch: int, capacity: int = 16) -> Any:
        return replace(self._unread(batch, capacity), log_probs=self._first(batch))

    def log_predictive(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return self.log_predictive_of_rows(
                torch.nn.functional.one_hot(tokens, self.vocab_size).to(self.device)
            )

    def log_predictive_of_rows(self, rows: Tensor) -> Tensor:
        logits = self.network.logits(self.network.embed(rows.to(self._like)))
        return torch.cat([self._first(len(rows))[:, None], logits.float().log_softmax(-1)], 1)

    @torch.no_grad()
    def continuation_log_probs(self, prompts: Tensor, horizon: int) -> Tensor:
        embedded = self.network.tokens(prompts.to(self.device))
        return self.continuation_log_probs_of_embeddings(embedded, horizon)

    def continuation_log_probs_of_embeddings(self, embedded: Tensor, horizon: int) -> Tensor:
        tree = continuation_tree(self.vocab_size, horizon)
        return self.network.log_probs_along(embedded.to(self._like), tree)
