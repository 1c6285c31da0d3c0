"""Hugging Face models over an alphabet: laws of plain passes, honest counts, plain refusals."""

import itertools
import json

import pytest
import torch
from language import NETWORKS, SIZE, gpt2, llama, tokenizer
from refusals import refused

import posteer
from posteer.cli import main
from posteer.models import Can, Metered, condition
from posteer.models.continuations import laws_by_levels, read_prompts
from posteer.models.trees import prompt_tree_size, tree_size
from posteer.tokens.contexts import all_sequences

TEXT = "A coin: H"
every_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=list(NETWORKS))


def wrapped(make, dtype=torch.float64, alphabet=" H, T,C", text=TEXT):
    return posteer.wrap(make(dtype), tokenizer=tokenizer(), alphabet=alphabet, text=text)


def plain_laws(model, tokens):
    """By whole passes of the network, one history at a time: nothing shared, nothing kept."""
    ids = torch.tensor(model.alphabet.ids)
    rows = []
    for row in tokens:
        whole = torch.cat([torch.tensor(model.opening), ids[row]])[None]
        logits = model.network(input_ids=whole, use_cache=False).logits[0].detach()
        share = logits[len(model.opening) - 1 :].softmax(-1)[:, ids]
        rows.append(share / share.sum(-1, keepdim=True))
    return torch.stack(rows).log()


@every_network
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_laws_are_those_of_plain_passes(make, dtype, close):
    """Llama's norms are in single precision whatever its weights are: equal sums all the same."""
    model = wrapped(make, dtype)
    assert model.vocab_size == 3 and model.opening[0] == 0
    tokens = all_sequences(3, 4)[::5]
    expected = plain_laws(model, tokens)
    assert torch.allclose(model.log_predictive(tokens), expected, atol=close)
    state = model.start(len(tokens), 1)  # no room yet: caches grow
    for place, token in enumerate(tokens.unbind(1)):
        assert torch.allclose(state.log_probs, expected[:, place], atol=close)
        law, state = model.advance(state, token)
        assert torch.allclose(law, expected[:, place + 1], atol=close)
    by_levels = laws_by_levels(model, read_prompts(model, tokens), len(tokens), 3)
    for read in (model.continuation_log_probs, model.shared_log_probs):
        assert torch.allclose(read(tokens, 3), by_levels, atol=10 * close)
    after = condition(model, (0, 2)).continuation_log_probs(tokens, 2)
    longer = torch.cat([torch.tensor([[0, 2]]).expand(len(tokens), -1), tokens], 1)
    assert torch.allclose(after, model.continuation_log_probs(longer, 2), atol=10 * close)


@every_network
def test_j_is_that_of_enumeration(make):
    model = wrapped(make)

    def utility(continuation):
        return continuation.count(0) ** 2 + continuation[0]

    found = posteer.evaluate(model, utility, "HTC", horizon=3).expected_utility
    expected = 0.0
    for continuation in itertools.product(range(3), repeat=3):
        history = torch.tensor([[0, 1, 2, *continuation[:-1]]])
        laws = plain_laws(model, history)[0, 3:].exp()
        chance = laws[0, continuation[0]] * laws[1, continuation[1]] * laws[2, continuation[2]]
        expected += float(chance) * utility(continuation)
    assert found == pytest.approx(expected, abs=1e-10)


@every_network
def test_all_prompts_are_ranked_as_one_by_one(make):
    model = wrapped(make, alphabet=" H, T")
    field = posteer.landscape(model, "dyck", 7, 2)
    values = posteer.expected_utility(model, "dyck", all_sequences(2, 7), 2).expected_utility
    assert torch.allclose(field.values, values, atol=1e-10)
    record = posteer.evaluate(model, "dyck", "HTHTHTH", horizon=2, rank=True)
    assert record.rank == 1 + int((values > values[0b0101010] + field.tie).sum())
    if model.masked:
        price = 7 + tree_size(2, 2)
        assert record.judging_tokens < 128 * price, "what prompts begin with is read once"


@every_network
def test_gradients_are_those_of_differences(make):
    model = wrapped(make)
    assert Can.ONE_HOTS in model.can and Can.EMBED in model.can
    rows = torch.nn.functional.one_hot(torch.tensor([[0, 1, 2]]), 3).double().requires_grad_()
    weights = torch.linspace(-1, 1, 9, dtype=torch.float64)

    def value(given):
        return (model.continuation_log_probs_of_rows(given, 2).exp() * weights).sum()

    (slope,) = torch.autograd.grad(value(rows), rows)
    assert slope.shape == (1, 3, 3)  # of the alphabet's tokens alone
    step = 1e-3  # norms in single precision round at 1e-7 or so
    for place, token in itertools.product(range(3), range(3)):
        nudge = torch.zeros_like(rows)
        nudge[0, place, token] = step
        with torch.no_grad():
            difference = float(value(rows + nudge) - value(rows - nudge)) / (2 * step)
        assert float(slope[0, place, token]) == pytest.approx(difference, abs=1e-3)
    for method in ("gcg", "simplex-pt(steps=2)", "soft-pt(steps=2)"):
        found = posteer.elicit(model, "frequency(0.5)", length=3, horizon=2, method=method)
        assert found.cost["backward_tokens"] > 0


@every_network
def test_the_meter_counts_what_the_network_reads(make):
    """Positions after the text, which a network that counts for itself is asked for."""
    model = wrapped(make)
    read = []

    def count(_module, given, named):
        known = (*given, named.get("input_ids"), named.get("inputs_embeds"))
        tokens = next(one for one in known if one is not None)
        read.append(tokens.shape[0] * tokens.shape[1])

    inner = model.network.base_model
    handle = inner.register_forward_pre_hook(count, with_kwargs=True)
    prompts = all_sequences(3, 3)
    meter = Metered(model)
    state = meter.start(4)
    for token in torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1]]):
        _, state = meter.advance(state, token)
    assert meter.queries.forward_tokens == sum(read) == 8
    if model.masked:  # else paths are read side by side, and counted as the tree they are
        read.clear()
        before = meter.queries.forward_tokens
        meter.continuation_log_probs(prompts, 3)
        assert meter.queries.forward_tokens - before == sum(read) == 27 * (3 + tree_size(3, 3))
        read.clear()
        before = meter.queries.forward_tokens
        meter.shared_log_probs(prompts, 3)
        assert meter.queries.forward_tokens - before == sum(read) == prompt_tree_size(prompts, 3, 3)
        read.clear()
        before, firsts = meter.queries.forward_tokens, all_sequences(3, 2)
        meter.product_log_probs(firsts, prompts, 2)
        own = 9 * (2 + prompt_tree_size(prompts, 3, 2))
        assert meter.queries.forward_tokens - before == sum(read) == own
    handle.remove()


def test_what_the_alphabet_holds_is_reported_and_warned_of():
    model = wrapped(llama)
    tokens = torch.tensor([[0, 1, 2], [2, 2, 0]])
    found = model.alphabet_share(tokens)
    for row, share in zip(tokens, found, strict=True):
        whole = torch.cat([torch.tensor(model.opening), torch.tensor(model.alphabet.ids)[row]])
        laws = model.network(whole[None]).logits[0].softmax(-1)[len(model.opening) - 1 :]
        expected = laws[:, list(model.alphabet.ids)].sum(-1)
        assert torch.allclose(share, expected, atol=1e-12)
    record = posteer.evaluate(model, "frequency(0.5)", "HTC", horizon=1)
    assert record.alphabet_share.mean == pytest.approx(float(found[0].mean()))
    assert record.alphabet_share.least == pytest.approx(float(found[0].min()))
    told = record.to_json()
    assert told["prompt_text"] == "HTC" and told["alphabet"] == ["H", "T", "C"]
    assert told["text"] == TEXT and told["alphabet_share"]["mean"] < 0.5
    assert [one["kind"] for one in told["warnings"]] == ["small-alphabet-share"]
    all_of_it = posteer.wrap(llama(), alphabet=list(range(SIZE)))
    assert float(all_of_it.alphabet_share(tokens).min()) == pytest.approx(1.0)


def test_a_folder_is_a_model_for_the_command_line(tmp_path, capsys):
    folder = tmp_path / "coin"
    llama(torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    line = ["--model", f"hf:{folder}", "--alphabet", " H, T", "--text", TEXT, "--horizon", "2"]
    main(["evaluate", *line, "--prompt", "HTTH", "--json"])
    found = json.loads(capsys.readouterr().out)
    same = posteer.wrap(llama(torch.float32), tokenizer=tokenizer(), alphabet=" H, T", text=TEXT)
    expected = posteer.evaluate(same, "dyck", [0, 1, 1, 0], horizon=2)
    assert found["expected_utility"] == pytest.approx(expected.expected_utility, abs=1e-6)
    main(["evaluate", *line, "--prompt", "HTTH"])
    shown = capsys.readouterr().out
    assert "HTTH" in shown and TEXT in shown and "alphabet holds" in shown
    limited = ["--allowed", "first=T;ban=HH", "--method", "exhaustive", "--length", "4"]
    main(["elicit", *line, "--context", "HT", *limited, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_text"][0] == "T" and "HH" not in found["prompt_text"]


REFUSED = {
    "two tokens": ({"alphabet": " H,HT"}, "'HT' is 2 tokens of .* ('H', 'T'): expected one"),
    "repeats": ({"alphabet": " H, T, H"}, "' H' is given twice"),
    "one token": ({"alphabet": " H"}, "an alphabet of 1 tokens: expected 2 to"),
    "no such id": ({"alphabet": [5, 99]}, "token 99: .* has 0 to 39"),
    "empty": ({"alphabet": " H,"}, "a piece of text is empty"),
    "no list": ({"alphabet": 3}, "alphabet 3: expected a text such as"),
    "no words": ({"text": 3}, "text 3: expected words"),
    "too long": ({"text": "H" * 96}, "the text has 97 tokens: .* reads 96"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_an_alphabet_cannot_be(given, said):
    asked = {"alphabet": " H, T", "text": TEXT, "tokenizer": tokenizer()} | given
    with pytest.raises(posteer.InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        posteer.wrap(gpt2(), **asked)


def test_a_text_may_be_ids():
    network, ids = llama(), [0, 2, 3, 7]
    model = posteer.wrap(network, alphabet=[7, 8], text=ids)
    assert model.opening == (0, 2, 3, 7) and model.text == "0 2 3 7"
    assert model.over([7, 10], "").opening == model.opening
    with pytest.raises(posteer.InputError, match="expected words, or ids"):
        posteer.wrap(network, alphabet=[7, 8], text=[-1])


def test_networks_that_are_not_fit_are_refused():
    asked = {"alphabet": " H, T", "text": TEXT, "tokenizer": tokenizer()}
    with pytest.raises(posteer.InputError, match="is in training mode"):
        posteer.wrap(gpt2().train(), **asked)
    broken = gpt2()
    broken.transformer.wpe.weight.data[3] = torch.nan
    with pytest.raises(posteer.InputError, match="logits that are no numbers"):
        posteer.wrap(broken, **asked)
    with pytest.raises(posteer.InputError, match="adds '</s>' after a text"):
        posteer.wrap(gpt2(), **(asked | {"tokenizer": tokenizer("<s> $A </s>")}))
    with pytest.raises(posteer.InputError, match="came without a tokenizer"):
        posteer.wrap(gpt2(), **(asked | {"tokenizer": None}))
    model = posteer.wrap(gpt2(), **asked)
    with pytest.raises(posteer.InputError, match="reads 91 tokens, expected length"):
        posteer.elicit(model, "dyck", length=90, method="random")


def test_folders_that_cannot_be_read_are_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    for name, said in (("none", "no such folder"), ("empty", "raised"), ("broken.gguf", "")):
        line = ["evaluate", "--model", f"hf:{tmp_path / name}", "--prompt", "0"]
        assert said in refused(capsys, *line)
    assert "no tokens" not in refused(capsys, "evaluate", "--model", "hf:", "--prompt", "0")
    said = refused(capsys, "evaluate", "--model", "urn", "--text", "words", "--prompt", "0")
    assert "urn reads no text" in said


def test_tokens_of_any_model_have_names(capsys):
    main(["evaluate", "--model", "exact:urn", "--alphabet", "(,)", "--prompt", "()()()"])
    assert "()()()" in capsys.readouterr().out
    asked = {"length": 6, "alphabet": ["(", ")"], "method": "exhaustive"}
    found = posteer.elicit("exact:urn", "dyck", **asked)
    assert found.to_json()["prompt_text"] == "()()()" and found.prompt == [0, 1, 0, 1, 0, 1]
    with pytest.raises(posteer.InputError, match="an alphabet of 3 names: exact:urn has 2 tokens"):
        posteer.elicit("exact:urn", "dyck", length=6, alphabet="A,C,G")
