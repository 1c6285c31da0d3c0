"""Other people's models through `posteer.wrap`, beside calling them by hand in batches.

    python benchmarks/doors.py [--layers 8 --width 192 --text 64 --device cpu] [--only rank]

rank      all 1,024 prompts of length 10 on a Hugging Face model: one cache for the text and trees
          of continuations, against an adapter that advances and copies caches at every fork
roll      rollouts, against a plain loop over the same model with its own cache
module    J of prompts on a torch module from ids to logits, against one call with all paths
function  the same on a function of numpy arrays that gives all positions
jax       the same, compiled by JAX for few shapes

Seconds are of the processor where that is what computes, so that a loaded machine measures alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import posteer
from posteer.banks.plans import DrawPlan
from posteer.banks.rollouts import roll_out
from posteer.models import Metered, Model
from posteer.models.continuations import continuation_laws
from posteer.tokens.contexts import all_sequences

ALPHABET = [5, 9]


def seconds(call: Callable[[], Any], device: str, times: int = 3) -> tuple[float, Any]:
    """The quickest of some calls, after one that warms up."""
    found, best = call(), float("inf")
    for _ in range(times):
        started = time.process_time() if device == "cpu" else time.perf_counter()
        found = call()
        if device != "cpu":
            torch.cuda.synchronize()
        now = time.process_time() if device == "cpu" else time.perf_counter()
        best = min(best, now - started)
    return best, found


def network_of(layers: int, width: int) -> Any:
    """A random Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = max(1, width // 32)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4096,
        bos_token_id=0,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


class Copying:
    """What a user would write: a cache in every state, copied whole at every fork."""

    vocab_size, order = 2, 1

    def __init__(self, network: Any, text: list[int]) -> None:
        self.network, self.text, self.ids = network, text, torch.tensor(ALPHABET)

    def start(self, batch: int) -> CopiedState:
        text = torch.tensor([self.text], device=self.network.device).expand(batch, -1)
        return self._state(self._read(text, None))

    def advance(self, state: CopiedState, tokens: Tensor) -> tuple[Tensor, CopiedState]:
        ids = self.ids[tokens.cpu()].to(self.network.device)
        after = self._state(self._read(ids[:, None], state.copied()))
        return after.log_probs, after

    @torch.no_grad()
    def _read(self, ids: Tensor, cache: Any) -> Any:
        from transformers import DynamicCache

        return self.network(input_ids=ids, past_key_values=cache or DynamicCache(), use_cache=True)

    def _state(self, found: Any) -> CopiedState:
        return CopiedState(
            found.past_key_values, found.logits[:, -1].cpu()[:, self.ids].log_softmax(-1)
        )


class CopiedState:
    def __init__(self, cache: Any, log_probs: Tensor) -> None:
        self.cache, self.log_probs = cache, log_probs

    def copied(self) -> Any:
        import copy

        return copy.deepcopy(self.cache)

    def select(self, rows: Tensor) -> CopiedState:
        forked = self.copied()
        forked.batch_select_indices(rows.to(self._device))
        return CopiedState(forked, self.log_probs[rows.cpu()])

    @property
    def _device(self) -> Any:
        return (getattr(self.cache, "layers", None) and self.cache.layers[0].keys.device) or "cpu"


def ranking(network: Any, text: list[int], device: str) -> None:
    """All prompts of length 10."""
    ours, theirs = wrapped(network, text), posteer.open_model(Copying(network, text), device)

    def values(model: Model) -> Any:
        found = posteer.landscape(model, "dyck", 10, 4, device=device)
        assert found is not None
        return found.values

    quick, found = seconds(lambda: values(ours), device)
    slow, expected = seconds(lambda: values(theirs), device, 1)
    off = float((found - expected).abs().max())
    print(
        f"rank      1,024 prompts: {quick:.2f} s; with copied caches {slow:.2f} s, "
        f"{slow / quick:.1f} times as long; J differs by {off:.1e} at most"
    )


def wrapped(network: Any, text: list[int]) -> Any:
    """The model over two tokens, after a text given as ids."""

    class Ids:
        """A tokenizer that knows numbers alone."""

        def encode(self, said: str, *, add_special_tokens: bool = True) -> list[int]:
            return [int(one) for one in said.split()] if said != "a" else [1]

        def decode(self, ids: list[int]) -> str:
            return " ".join(map(str, ids))

    words = " ".join(map(str, text))
    return posteer.wrap(network, tokenizer=Ids(), alphabet=ALPHABET, text=words)


def rolling(network: Any, text: list[int], device: str, rows: int = 256, length: int = 32) -> None:
    """Rollouts of the model, drawn and counted; by hand drawn alone."""
    model = wrapped(network, text)
    plan = DrawPlan(n_samples=rows, rollout_length=length)
    meter = Metered(model)
    family = plan.check(meter)
    ours, _ = seconds(lambda: roll_out(meter, plan, family, 0, rows), device)
    hand, _ = seconds(lambda: by_hand(network, text, rows, length), device)
    told(f"rollouts of {length} tokens after {len(text)}", "roll", rows * length, ours, hand)


@torch.no_grad()
def by_hand(network: Any, text: list[int], rows: int, length: int) -> Tensor:
    """A plain loop: the text once a row, then a token at a time."""
    alphabet = torch.tensor(ALPHABET, device=network.device)
    ids, cache, drawn = torch.tensor([text], device=network.device).expand(rows, -1), None, []
    for _ in range(length):
        found = network(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = found.past_key_values
        picked = torch.multinomial(found.logits[:, -1, alphabet].softmax(-1), 1)
        ids = alphabet[picked]
        drawn.append(picked)
    return torch.cat(drawn, 1)


class Recurrent(nn.Module):
    """Ids to logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(64, width), nn.Linear(width, 64)
        self.inner = nn.GRU(width, width, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.inner(self.table(ids))[0])


def weights() -> tuple[Any, Any, Any]:
    """Of a small network, as arrays."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 128), (128, 512), (512, 2))
    table, up, out = (torch.randn(shape, generator=generator).numpy() for shape in shapes)
    return table, up, out


def numpy_model() -> tuple[Model, Callable[[Tensor], Any]]:
    """A function of numpy's arrays, and how it is called by hand."""
    table, up, out = weights()

    def predict(tokens: Any) -> Any:
        return numpy.tanh(table[tokens].cumsum(1) @ up) @ out

    how: dict[str, Any] = {"arrays": "numpy", "all_positions": True, "gives": "logits"}
    return posteer.wrap(predict, vocab_size=2, **how), lambda rows: predict(rows.numpy())


def jax_model() -> tuple[Model, Callable[[Tensor], Any]]:
    """The same compiled by JAX."""
    import jax

    table, up, out = map(jax.numpy.asarray, weights())

    def network(tokens: Any) -> Any:
        return jax.numpy.tanh(table[tokens].cumsum(1) @ up) @ out

    predict = jax.jit(network)
    model = posteer.wrap(predict, vocab_size=2, all_positions=True, gives="logits")
    return model, lambda rows: numpy.asarray(predict(rows.numpy()))


def whole(name: str, model: Model, call: Callable[[Tensor], Any], device: str) -> None:
    """J's laws of all prompts of ten tokens, and one call with all their paths."""
    prompts, paths = all_sequences(2, 10), all_sequences(2, 3)
    rows = torch.cat([prompts.repeat_interleave(8, 0), paths.repeat(len(prompts), 1)], 1)
    if name == "module":  # it begins with a token of its own
        rows = torch.cat([torch.zeros_like(rows[:, :1]), rows], 1)
    ours, _ = seconds(lambda: continuation_laws(model, prompts, 4), device)
    hand, _ = seconds(lambda: [call(part) for part in rows.split(2048)], device)
    told("J of 1,024 prompts", name, rows.numel(), ours, hand)


def told(what: str, name: str, tokens: int, ours: float, hand: float) -> None:
    print(
        f"{name:9} {what}: {tokens / ours:,.0f} tokens/s, by hand {tokens / hand:,.0f}; "
        f"{ours / hand:.2f} times as long"
    )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--text", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="rank,roll,module,function,jax")
    asked = parser.parse_args()
    only = asked.only.split(",")
    network = network_of(asked.layers, asked.width).to(asked.device)
    text = (torch.arange(asked.text) * 7 % 2000 + 10).tolist()
    if "rank" in only:
        ranking(network, text, asked.device)
    if "roll" in only:
        rolling(network, text, asked.device)
    recurrent = Recurrent(asked.width).to(asked.device).eval()
    if "module" in only:
        model = posteer.wrap(recurrent, first=0, alphabet=ALPHABET)
        with torch.no_grad():
            whole("module", model, lambda rows: recurrent(rows.to(asked.device)), asked.device)
    if "function" in only:
        whole("function", *numpy_model(), asked.device)
    if "jax" in only:
        whole("jax", *jax_model(), asked.device)


if __name__ == "__main__":
    main()
