"""A user's model: the rule of succession, whose bank is as large as there is time for."""

from __future__ import annotations

import torch
from torch import Tensor


class Predict:
    """The law of the next token, from the share of ones so far."""

    vocab_size, order, max_length = 2, 0, 70

    def __call__(self, tokens: Tensor) -> Tensor:
        ones = ((tokens == 1).sum(1).double() + 1) / (tokens.shape[1] + 2)
        return torch.stack([1 - ones, ones], 1)


predict = Predict()
