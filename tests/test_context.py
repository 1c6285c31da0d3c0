"""Prompts after observed tokens, against plain exact Bayes of context + prompt."""

import itertools

import pytest
import torch
from examples import bank_estimate
from oracles import context_number, dirichlet_sequence_probability, is_dyck, log_target, sequences
from posing import posed

import posteer
from posteer.api.eliciting import elicit
from posteer.api.evaluating import evaluate
from posteer.banks import draw_analytic
from posteer.banks.reweighed import effective_latents
from posteer.core.errors import InputError
from posteer.evaluation import expected_utility, landscape
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.goals.objectives import objective_of
from posteer.goals.utilities import open_goal, open_utility
from posteer.methods.registry import open_method
from posteer.models import ExactModel, FunctionModel, Metered, condition, open_model
from posteer.models.continuations import continuation_laws
from posteer.tokens.contexts import ContextSpace, all_sequences

CASES = [
    # order, utility, its order, context, length
    (0, "frequency(0.3)", 0, "110", 5),
    (0, "reverse-xent(dir-4)", 1, "110", 5),
    (1, "dyck", 0, "1", 5),
    (1, "dyck", 0, "0111", 5),
    (1, "reverse-xent(dir-2)", 1, "001", 1),
    (2, "dyck", 0, "1", 5),
    (2, "dyck", 0, "11010", 4),
    (2, "reverse-xent(dir-2)", 1, "0110", 2),
]


def markov(order):
    return f"exact:markov(vocab=2,order={order},concentration=0.5)"


def plain(order, utility, utility_order, context, prompt, horizon=3):
    """J by Polya's urn over every continuation of context + prompt: no code of ours but the
    utility's target."""
    concentration = [[0.5, 0.5]] * 2**order
    history = tuple(map(int, context)) + tuple(prompt)
    before = dirichlet_sequence_probability(history, concentration, order, 2)
    goal = open_utility(utility, ContextSpace(2, order))
    total = 0.0
    for continuation in sequences(2, horizon):
        whole = dirichlet_sequence_probability(history + continuation, concentration, order, 2)
        if utility == "dyck":
            value = float(is_dyck(continuation))
        elif utility.startswith("frequency"):
            value = -((sum(continuation) / horizon - 0.3) ** 2)
        else:
            last = history[len(history) - utility_order :]
            value = log_target(continuation, last, goal.target.tolist())
        total += whole / before * value
    return total


@pytest.mark.parametrize(("order", "utility", "utility_order", "context", "length"), CASES)
def test_every_prompt_after_a_context_is_worth_what_exact_bayes_says(
    order, utility, utility_order, context, length
):
    horizon = 4 if utility == "dyck" else 3
    base = open_model(markov(order))
    model = condition(base, tuple(map(int, context)))
    goal = open_utility(utility, base)
    prompts = all_sequences(2, length)
    found = expected_utility(model, goal, prompts, horizon).expected_utility
    expected = [plain(order, utility, utility_order, context, p, horizon) for p in prompts.tolist()]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    field = landscape(model, goal, length, horizon)
    assert field.n_prompts == 2**length
    assert field.optimum == pytest.approx(max(expected), abs=1e-12)
    counted = sorted(
        v for v, n in zip(field.values.tolist(), field.sizes, strict=True) for _ in range(n)
    )
    assert counted == pytest.approx(sorted(expected), abs=1e-12)
    best = evaluate(
        markov(order), utility, field.best_prompt.tolist(), context=context, horizon=horizon
    )
    assert best.rank == 1
    assert best.to_json()["context"] == [int(token) for token in context]
    # the same model through its next-token laws alone, reading the context itself
    blind = FunctionModel(
        lambda tokens: base.log_predictive(tokens)[:, -1].exp(), vocab_size=2, order=order
    )
    by_reading = Metered(condition(blind, tuple(map(int, context))))
    read = expected_utility(by_reading, goal, prompts, horizon).expected_utility
    assert read.tolist() == pytest.approx(expected, abs=1e-12)
    n_nodes = by_reading.tokens_of(length, horizon)
    assert by_reading.queries.forward_tokens == len(prompts) * n_nodes
    assert n_nodes == len(context) + length + sum(2**d for d in range(1, horizon))
    assert landscape(by_reading, goal, length, horizon).optimum == pytest.approx(max(expected))


@pytest.mark.parametrize(("order", "utility", "utility_order", "context", "length"), CASES)
def test_classes_and_their_walks_after_a_context(order, utility, utility_order, context, length):
    """Every prompt lies in one class, with the counts of its own transitions and no others."""
    space, head = ContextSpace(2, order), tuple(map(int, context))
    problem = ClassProblem(space, length, utility_order, context=head)
    classes = problem.enumerate()
    known = {}
    for row in range(len(classes)):
        key = (
            *classes.counts[row].flatten().tolist(),
            int(classes.starts[row]),
            int(classes.last[row]),
        )
        known[key] = classes.sizes[row]
        counts, first, last = problem.describe(classes.prompt(row)[None])
        assert key == (*counts.flatten().tolist(), int(first), int(last))
    met = dict.fromkeys(known, 0)
    for prompt in all_sequences(2, length):
        counts, first, last = problem.describe(prompt[None])
        met[(*counts.flatten().tolist(), int(first), int(last))] += 1
        whole = torch.tensor([*head, *prompt.tolist()])
        own = torch.zeros(2**order, 2)
        for i in range(max(order, len(head)), len(whole)):
            own[context_number(whole[i - order : i].tolist(), 2), whole[i]] += 1
        assert torch.equal(own.long(), counts[0])
    assert met == known


@pytest.mark.parametrize("search", ["", ",limit=0,steps=40"])
@pytest.mark.parametrize(("order", "utility", "utility_order", "context", "length"), CASES)
def test_class_search_finds_the_best_of_all_prompts_after_the_context(
    order, utility, utility_order, context, length, search
):
    tokens = tuple(map(int, context))
    model = Metered(condition(open_model(markov(order)), tokens))
    goal = open_utility(utility, model)
    problem = posed(model, goal, length, 4, 0)
    (answer,) = open_method(f"classes-analytic(samples=300,estimator=importance{search})").solve(
        [problem]
    )
    prompts = all_sequences(2, length)
    values = bank_estimate(model.prior, tokens, goal, utility_order, prompts, 4, 300)
    assert answer.surrogate == pytest.approx(float(values.max()), abs=1e-12)
    own = bank_estimate(model.prior, tokens, goal, utility_order, answer.prompt[None], 4, 300)
    assert float(own) == pytest.approx(answer.surrogate, abs=1e-12)
    assert (answer.certificate is None) == bool(search)
    assert model.queries.forward_tokens == 0


@pytest.mark.parametrize("tilt", ["linear", "geometric"])
@pytest.mark.parametrize(("order", "utility", "utility_order", "context", "length"), CASES)
def test_surrogates_and_snapped_prompts_after_a_context(
    order, utility, utility_order, context, length, tilt
):
    """The surrogate of a kernel is its definition over all prompts it draws; that of the snapped
    prompt is the bank's estimate of it."""
    tokens = tuple(map(int, context))
    model = Metered(condition(open_model(markov(order)), tokens))
    goal = open_utility(utility, model)
    problem = posed(model, goal, length, 4, 0)
    method = open_method(f"ppt-rb-analytic(samples=200,steps=25,tilt={tilt})")
    (solution,) = method.optimise([problem])
    prompt, value = solution.snap("own-context")
    assert len(prompt) == length
    own = bank_estimate(model.prior, tokens, goal, utility_order, prompt[None], 4, 200)
    assert value == pytest.approx(float(own), abs=1e-12)
    # by definition: every prompt of the kernel with its probability
    space, kernel = solution.lifted.space, solution.ascent.prompt
    bank = draw_analytic(model.prior, 200, 0)
    log_w = torch.zeros(200).double()
    linear = torch.zeros(200).double()
    nu = torch.zeros(space.n_contexts).double()
    head, total = tokens[len(tokens) - space.order :] if len(tokens) > space.order else tokens, 0.0
    head = head if space.order else ()
    for prompt in all_sequences(2, length).tolist():
        walk = (*head, *prompt)
        start = context_number(walk[: space.order], 2)
        p = float(kernel.initial[0, start])
        for i in range(space.order, len(walk)):
            p *= float(kernel.transitions[0, context_number(walk[i - space.order : i], 2), walk[i]])
        whole = (*tokens, *prompt)
        like = torch.zeros(200).double()
        for i in range(max(order, len(tokens)), len(whole)):
            row = context_number(whole[i - order : i], 2)
            like += bank.kernels[:, row, whole[i]].log()
        log_w += p * like
        linear += p * like.exp()
        nu[context_number(walk[len(walk) - space.order :], 2)] += p
        total += p
    assert total == pytest.approx(1)
    weights = (linear.log() if tilt == "linear" else log_w).softmax(0)
    expected = float((weights * (solution.means @ nu)).sum())
    assert solution.ascent.surrogate == pytest.approx(expected, abs=1e-10)


def network():
    return open_model("urn")


@pytest.mark.parametrize("utility", ["reverse-xent(dir-2)", "forward-xent(sym-0.2)"])
def test_direct_searches_on_a_network_read_the_context(utility):
    base, context = network(), "0111011"
    tokens = [int(token) for token in context]
    prompts = all_sequences(2, 4)
    whole = torch.cat([torch.tensor(tokens).expand(16, -1), prompts], 1)
    model = condition(base, tuple(tokens))
    laws = continuation_laws(model, prompts, 4)
    assert torch.allclose(laws, continuation_laws(base, whole, 4), atol=1e-6)
    read = model.log_predictive(prompts)
    assert torch.allclose(read, base.log_predictive(whole)[:, 7:], atol=1e-5)
    state = model.start(16)
    for token in prompts.unbind(-1):
        law, state = model.advance(state, token)
    assert torch.allclose(law, model.log_predictive(prompts)[:, -1], atol=1e-5)
    goal = open_goal(utility, base)
    last = ContextSpace(2, goal.order).suffix(whole)
    values = objective_of(goal, 2, 4).of_laws(continuation_laws(base, whole, 4), last)
    optimum = float(values.max())
    for method in ("exhaustive", "gcg(top-k=2,buffer=6)", "coordinate(restarts=3)", "beam"):
        found = elicit(base, utility, length=4, method=method, context=context)
        place = int(ContextSpace(2, 4).encode(torch.tensor(found.prompt)))
        assert found.expected_utility == pytest.approx(float(values[place]), abs=1e-5)
        assert found.optimum == pytest.approx(optimum, abs=1e-5)
        assert found.expected_utility == pytest.approx(optimum, abs=2e-2), method
        if method == "exhaustive":
            assert found.cost["forward_tokens"] == 16 * (7 + 4 + 14)
            assert found.rank == 1
        assert found.cost["forward_tokens"] % (7 + 4 + 14) == 0 or method == "beam"
    for method in ("simplex-pt(steps=4)", "soft-pt(steps=4)"):
        found = elicit(base, utility, length=4, method=method, context=context)
        assert found.cost["backward_tokens"] == 4 * (7 + 4 + 14)


def test_gradients_are_in_the_prompt_and_those_of_the_whole_history():
    base, tokens = network(), (0, 1, 1)
    model = condition(base, tokens)
    rows = torch.nn.functional.one_hot(torch.tensor([[1, 0, 0, 1]]), 2).float().requires_grad_()
    read = torch.nn.functional.one_hot(torch.tensor([tokens]), 2).float()
    law = model.continuation_log_probs_of_rows(rows, 3)
    (own,) = torch.autograd.grad(law[0, 2], rows)
    longer = torch.cat([read, rows.detach()], 1).requires_grad_()
    (expected,) = torch.autograd.grad(base.continuation_log_probs_of_rows(longer, 3)[0, 2], longer)
    assert torch.allclose(own, expected[:, 3:], atol=1e-6)
    embedded = base.network.embed(rows.detach())
    again = model.continuation_log_probs_of_embeddings(embedded, 3)
    assert torch.allclose(again, law.detach(), atol=1e-6)


def test_a_short_context_weighs_the_shipped_bank_and_a_long_one_draws():
    """Weighing 5,000 latents of the prior: the estimate is that of context + prompt from it."""
    context = (0, 1, 1, 0, 1)
    base = open_model("urn")
    shipped = posteer.banks.shipped.shipped_bank(base.fingerprint)
    assert effective_latents(shipped, context) > 500
    method = "classes(estimator=importance)"
    found = elicit("urn", "dyck", length=6, method=method, context=context)
    assert found.cost["bank_tokens"] == shipped.tokens
    assert found.held_out_surrogate is not None
    whole = torch.tensor([[*context, *found.prompt]])
    goal = open_utility("dyck", base)
    expected = posteer.estimate_from_bank(shipped, goal, whole, 4)
    assert found.surrogate == pytest.approx(float(expected), abs=1e-12)
    snapped = elicit("urn", "dyck", length=6, method="ppt-rb(steps=30)", context=context)
    whole = torch.tensor([[*context, *snapped.prompt]])
    expected = posteer.estimate_from_bank(shipped, goal, whole, 4)
    assert snapped.snapped_surrogate == pytest.approx(float(expected), abs=1e-10)
    assert effective_latents(shipped, (0, 1) * 40) < 500


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["importance", "psis", "conjugate", "smc"])
def test_every_estimator_adds_what_was_observed(estimator):
    """A prior bank, weighed by the context: what it says of the prompt found is its exact J. Four
    estimates beyond five standard errors of the fit and of the rollouts: once in a million."""
    bank = posteer.sample("exact:urn", rollouts=3000, length=400)
    ask = {"length": 8, "method": f"classes(estimator={estimator})", "bank": bank}
    found = elicit("exact:urn", "dyck", context="01101", **ask)
    error = max(found.surrogate_standard_error, 0.005)
    assert found.surrogate == pytest.approx(found.expected_utility, abs=5 * error)
    assert found.optimum - found.expected_utility < 0.02


def test_banks_drawn_after_a_context_serve_that_context_alone():
    context = [1, 1, 0, 1]
    bank = posteer.sample("exact:urn", rollouts=100, length=60, context=context)
    ask = {"length": 4, "method": "classes", "bank": bank}
    found = elicit("exact:urn", "dyck", context=context, **ask)
    assert found.cost["bank_tokens"] == 100 * (4 + 59)
    own = elicit(
        "exact:urn",
        "dyck",
        length=4,
        context="1101",
        method="classes(samples=100,rollout-length=60)",
    )
    assert own.prompt == found.prompt
    assert own.surrogate == pytest.approx(found.surrogate, abs=1e-12)
    with pytest.raises(InputError, match=r"of exact:urn, and exact:urn has read \[1, 1\]"):
        elicit("exact:urn", "dyck", context=[1, 1], **ask)
    with pytest.raises(InputError, match="a prompt starts from the prior"):
        elicit("exact:urn", "dyck", **ask)
    prior = posteer.sample("exact:urn", rollouts=100, length=60)
    with pytest.raises(InputError, match="effective latents of it, expected 500: draw one"):
        elicit("exact:urn", "dyck", context=context, length=4, method="classes", bank=prior)
    loose = elicit(
        "exact:urn",
        "dyck",
        context=context,
        length=4,
        method="classes(estimator=importance)",
        bank=prior,
        allow_mismatch=True,
    )
    whole = torch.tensor([[*context, *loose.prompt]])
    goal = open_utility("dyck", ContextSpace(2, 1))
    assert loose.surrogate == pytest.approx(
        float(posteer.estimate_from_bank(prior, goal, whole, 4))
    )


@pytest.mark.parametrize("method", ["ppt-analytic", "ppt-rb-analytic", "ppt", "ppt-rb", "classes"])
def test_all_methods_of_a_bank_reach_the_optimum_after_a_decisive_context(method):
    """After alternations, more of them are best: a corner that every ascent finds."""
    settings = "samples=400,steps=60" + ("" if "analytic" in method else ",rollout-length=200")
    found = elicit("exact:urn", "dyck", length=4, method=f"{method}({settings})", context="0101")
    assert found.optimum is not None and found.optimum > 0.6
    assert found.expected_utility == pytest.approx(found.optimum, abs=0.05)


def test_mixtures_are_reweighted_and_impossible_contexts_refused():
    found = elicit(
        "exact:coins(0.2,0.7)", "frequency(1.0)", length=2, context="1111", method="exhaustive"
    )
    odds = (0.7 / 0.2) ** 4 * 0.7 ** sum(found.prompt) * 0.3 ** (2 - sum(found.prompt))
    odds /= 0.2 ** sum(found.prompt) * 0.8 ** (2 - sum(found.prompt))
    weight = odds / (1 + odds)
    mean = [
        sum(
            -((sum(y) / 4 - 1) ** 2) * p ** sum(y) * (1 - p) ** (4 - sum(y))
            for y in itertools.product((0, 1), repeat=4)
        )
        for p in (0.2, 0.7)
    ]
    assert found.expected_utility == pytest.approx(weight * mean[1] + (1 - weight) * mean[0])
    with pytest.raises(InputError, match=r"the context \[1\] is impossible under exact:coins"):
        elicit("exact:coins(0.0,0.0)", "frequency(1.0)", length=2, context="1")


def test_contexts_that_make_no_sense_are_refused():
    for context, complaint in (("012", "symbol '2'"), ([0, 5], "symbol 5"), ("0x", "symbol 'x'")):
        with pytest.raises(InputError, match=complaint):
            elicit("exact:urn", "dyck", length=3, context=context)
        with pytest.raises(InputError, match=complaint):
            evaluate("exact:urn", "dyck", "010", context=context)


def test_a_conditioned_model_is_another_model():
    for base in (open_model("exact:urn"), network()):
        after = condition(base, (0, 1))
        assert condition(base, ()) is base
        assert len({base.fingerprint, after.fingerprint, condition(base, (1, 0)).fingerprint}) == 3
        assert after.name == base.name
        assert torch.equal(
            after.prior.concentration, base.prior.concentration + torch.tensor([[0, 1], [0, 0]])
        )
    assert isinstance(condition(open_model("exact:urn"), (0,)), ExactModel)


def test_no_context_is_no_condition():
    for method in ("ppt-rb-analytic(steps=20)", "classes-analytic", "beam"):
        plainly = elicit("exact:urn", "dyck", length=5, method=method).to_json()
        empty = elicit(
            "exact:urn", "dyck", length=5, method=method, context="", allowed=""
        ).to_json()
        assert empty["context"] == []
        assert {**plainly, "seconds": 0, "allowed": None} == {
            **empty,
            "seconds": 0,
            "allowed": None,
        }
