"""Small random language models of real architectures, and a tokenizer of few words."""

from importlib.util import find_spec

import pytest
import torch

transformers = pytest.importorskip("transformers")

WORDS = ["<s>", "</s>", "A", "coin", ":", "H", "T", "ĠH", "ĠT", "Ġ", "C", "G", "0", "1"]
SIZE = 40


def installed(*packages):
    """Whether all of them are here."""
    return all(find_spec(name) is not None for name in packages)


def tokenizer(special="<s> $A"):
    """Letters and a few words; ` H` is one token, `HT` two."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    known = {word: at for at, word in enumerate(WORDS)}
    inner = Tokenizer(models.BPE(known, [("Ġ", "H"), ("Ġ", "T")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    marks = [("<s>", 0), ("</s>", 1)]
    inner.post_processor = processors.TemplateProcessing(single=special, special_tokens=marks)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>"
    )


def llama(dtype=torch.float64, **changes):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    config = transformers.LlamaConfig(vocab_size=SIZE, **(sizes | heads | ends | changes))
    return _random(transformers.LlamaForCausalLM(config), dtype)


def gpt2(dtype=torch.float64):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
    config = transformers.GPT2Config(vocab_size=SIZE, **sizes, **ends)
    return _random(transformers.GPT2LMHeadModel(config), dtype)


def _random(network, dtype):
    """Weights large enough to matter."""
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        values = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        parameter.data = 0.3 * values
    return network.to(dtype).eval()


NETWORKS = {"llama": llama, "gpt2": gpt2}
