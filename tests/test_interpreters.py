"""Models in the hands of nnsight and TransformerLens: the real ones where they are installed."""

import pytest
import torch
from language import gpt2, tokenizer

import posteer

WORDS = {"alphabet": " H, T", "text": "A coin:"}
PROMPTS = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 1]])


@pytest.fixture(scope="module")
def network():
    return gpt2(torch.float32)


def same_laws(model, network):
    own = posteer.wrap(network, tokenizer=tokenizer(), **WORDS)
    return torch.allclose(model.log_predictive(PROMPTS), own.log_predictive(PROMPTS), atol=1e-6)


@pytest.mark.parametrize("held", ["_module", "_model"])
def test_the_network_that_an_object_of_nnsight_holds_is_found(network, held):
    """As its versions from 0.5 on and before hold it."""
    kind = type("Envoy", (), {"__module__": "nnsight.modeling.base"})
    given = kind()
    setattr(given, held, network)
    model = posteer.wrap(given, tokenizer=tokenizer(), **WORDS)
    assert same_laws(model, network)


def test_a_network_whose_forward_was_wrapped_keeps_its_whole_last_layer():
    """Interpreters put a function in the place of a network's `forward`: copies call it, too."""
    network = gpt2(torch.float32)
    plain = posteer.wrap(network, tokenizer=tokenizer(), **WORDS).log_predictive(PROMPTS)
    network.forward = network.forward
    model = posteer.wrap(network, tokenizer=tokenizer(), **WORDS)
    assert torch.allclose(model.log_predictive(PROMPTS), plain, atol=1e-6)


def test_nnsight(network):
    nnsight = pytest.importorskip("nnsight")
    model = posteer.wrap(nnsight.NNsight(network), tokenizer=tokenizer(), **WORDS)
    assert same_laws(model, network)
    assert posteer.elicit(model, "dyck", length=3, method="gcg").rank is not None


def test_transformer_lens():
    lens = pytest.importorskip("transformer_lens")
    sizes = {"n_layers": 2, "d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 64}
    config = lens.HookedTransformerConfig(**sizes, n_ctx=96, d_vocab=40, act_fn="gelu", seed=0)
    network = lens.HookedTransformer(config).eval()
    more = {"embedding": network.embed, "max_length": network.cfg.n_ctx}
    model = posteer.wrap(network, alphabet=[7, 8], text=[0, 2, 3], **more)
    with torch.no_grad():
        logits = network(torch.tensor([[0, 2, 3, 7, 8, 8, 7]]))[:, 2:, [7, 8]]
    assert torch.allclose(model.log_predictive(PROMPTS[:1]), logits.log_softmax(-1), atol=1e-6)
    assert posteer.elicit(model, "dyck", length=3, method="gcg").rank is not None
