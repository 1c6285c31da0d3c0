"""All continuations of a prompt in one pass, and gradients through it."""

import pytest
import torch
from networks import problems_of, small

from posteer.methods.direct.field import Field
from posteer.models import Metered, condition, continuations, open_model
from posteer.models.continuations import continuation_laws, shared_laws
from posteer.models.transformer import packed
from posteer.models.trees import continuation_tree, prompt_tree, prompt_tree_size, tree_size
from posteer.tokens.contexts import all_sequences


@pytest.mark.parametrize(("vocab", "horizon"), [(2, 1), (2, 4), (3, 3), (5, 2)])
@pytest.mark.parametrize("positions", ["none", "learned"])
def test_a_tree_is_read_like_its_sequences(vocab, horizon, positions):
    """Every continuation as a sequence of its own, by the ordinary forward pass."""
    model = small(positions, vocab=vocab)
    prompts = torch.randint(vocab, (7, 9), generator=torch.Generator().manual_seed(0))
    found = model.continuation_log_probs(prompts, horizon)
    for column, continuation in enumerate(all_sequences(vocab, horizon)):
        whole = torch.cat([prompts, continuation.expand(7, -1)], 1)
        laws = model.log_predictive(whole)[:, 9:-1]
        expected = laws.gather(-1, whole[:, 9:, None]).squeeze(-1).sum(-1)
        assert torch.allclose(found[:, column], expected, atol=2e-5)
    assert torch.allclose(found.exp().sum(-1), torch.ones(7), atol=1e-5)


def test_the_size_of_a_tree_of_prompts_is_known_before_it_is_made():
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        prompts = torch.randint(3, (6, 4), generator=generator)
        beginnings = {tuple(row[:n]) for row in prompts.tolist() for n in range(1, 5)}
        distinct = len({tuple(row) for row in prompts.tolist()})
        expected = len(beginnings) + distinct * tree_size(3, 3)
        assert len(prompt_tree(prompts, 3, 3)) == prompt_tree_size(prompts, 3, 3) == expected


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("vocab", "length", "horizon"), [(2, 12, 4), (3, 5, 1), (3, 1, 3), (5, 2, 2)]
)
def test_prompts_are_packed_into_the_nodes_of_their_tree(
    monkeypatch, at_once, layers, vocab, length, horizon
):
    """Of neighbours of one prompt, as a search tries them: each node once, BOS among them, laws as
    behind a mask, prompts that are asked twice included; as a CPU attends and as a GPU does."""
    monkeypatch.setattr(packed, "ATTENDING_AT_ONCE", 100)
    model = small("learned", vocab=vocab, layers=layers)
    base = torch.randint(vocab, (length,), generator=torch.Generator().manual_seed(3))
    prompts = torch.cat(
        [(base + torch.eye(length, dtype=torch.long)) % vocab, base[None], base[None]]
    )
    nodes = packed.pack(prompts, vocab, horizon, at_once)
    assert len(nodes.tokens) == 1 + prompt_tree_size(prompts, vocab, horizon)
    network = model.network
    with torch.no_grad():
        found = packed.packed_log_probs(network, prompts, horizon, at_once)
        tree = continuation_tree(vocab, horizon)
        expected = network.tree_log_probs(network.tokens(prompts), tree)
    assert torch.allclose(found, expected, atol=1e-5)


def test_trees_count_inner_nodes():
    assert tree_size(2, 4) == len(continuation_tree(2, 4)) == 14
    assert tree_size(3, 1) == len(continuation_tree(3, 1)) == 0


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("name", ["exact:urn", "small", "small after 01", "exact:urn after 01"])
def test_prompts_that_begin_alike_are_read_together(name, positions, monkeypatch):
    model = small(positions, vocab=2) if name.startswith("small") else open_model("exact:urn")
    after = (0, 1) if name.endswith("01") else ()
    model = Metered(condition(model, after))
    prompts = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])
    law = shared_laws(model, prompts, 3)
    assert model.queries.forward_tokens == model.context_tokens + (4 + 2 + 4) + 3 * 6
    expected = continuation_laws(model, prompts, 3)
    assert torch.allclose(law, expected, atol=1e-5)
    monkeypatch.setattr(continuations, "NODES_OF_ONE_TREE", 27)
    assert torch.allclose(shared_laws(model, prompts, 3), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["exact:urn", "beta-bernoulli", "small"])
def test_laws_cost_what_the_price_says(name):
    model = Metered(small(vocab=2) if name == "small" else open_model(name))
    continuation_laws(model, torch.zeros(5, 8, dtype=torch.long), 4)
    assert model.queries.forward_tokens == 5 * (8 + 14) == 5 * model.tokens_of(8, 4)
    assert model.queries.backward_tokens == 0


def test_running_out_of_memory_halves_the_pass(monkeypatch):
    model = small(vocab=2)
    prompts = all_sequences(2, 5)
    whole = continuation_laws(model, prompts, 3)
    read = model.continuation_log_probs
    sizes = []

    def tight(some, horizon):
        sizes.append(len(some))
        if len(some) > 5:
            raise torch.OutOfMemoryError
        return read(some, horizon)

    monkeypatch.setattr(model, "continuation_log_probs", tight)
    assert torch.allclose(continuation_laws(model, prompts, 3), whole, atol=1e-6)
    assert max(sizes[-6:]) <= 5


@pytest.mark.parametrize("utility", ["dyck", "reverse-xent(dir-4)", "frequency(0.3)"])
def test_one_hot_gradients_against_finite_differences(utility):
    """Central differences in float64; the context a goal reads stays that of the hard prompt."""
    model = small("learned", vocab=2)
    model.network.double()
    field = Field(problems_of(model, utility, length=5, seeds=[0]))
    prompt = torch.tensor([[0, 1, 1, 0, 1]])
    rows = torch.nn.functional.one_hot(prompt, 2).double()

    def value(at):
        embedded = model.network.embed(at)
        tree = continuation_tree(2, 4)
        laws = model.network.tree_log_probs(embedded, tree)
        return float(field.of_laws(torch.tensor([0]), prompt, laws.detach())[0])

    _, slope = field.gradients(torch.tensor([0]), prompt)
    step = 1e-3
    for place in range(5):
        for token in range(2):
            up, down = rows.clone(), rows.clone()
            up[0, place, token] += step
            down[0, place, token] -= step
            numeric = (value(up) - value(down)) / (2 * step)
            # logits are cast to float32 before the softmax: 1e-7 / step, and step squared
            assert float(slope[0, place, token]) == pytest.approx(numeric, abs=5e-4)


def test_deep_trees_are_read_level_by_level(monkeypatch):
    model = small(vocab=2)
    prompts = all_sequences(2, 3)
    one_pass = continuation_laws(model, prompts, 4)
    monkeypatch.setattr(continuations, "NODES_IN_ONE_PASS", 3)
    metered = Metered(model)
    assert torch.allclose(continuation_laws(metered, prompts, 4), one_pass, atol=1e-5)
    assert metered.queries.forward_tokens == 8 * metered.tokens_of(3, 4)
