"""Direct search: trees, gradients, GCG by the book, baselines, budgets, soft prefixes."""

import itertools
import math

import pytest
import torch
from networks import TIE, problems_of, same_or_tied, small

from posteer.api.eliciting import elicit, elicit_many
from posteer.core.errors import InputError
from posteer.evaluation import expected_utility, landscape
from posteer.goals.dyck import Dyck
from posteer.goals.objectives import ExpectedUtility
from posteer.goals.utilities import open_utility
from posteer.methods.direct.beam import BeamSearch
from posteer.methods.direct.coordinate import CoordinateAscent, single_substitutions
from posteer.methods.direct.field import Field
from posteer.methods.direct.gcg import GreedyCoordinateGradient
from posteer.methods.direct.prefixes import PrefixTuning
from posteer.methods.direct.random_search import RandomSearch
from posteer.models import Can, FunctionModel, Metered, open_model
from posteer.models.transformer.model import TransformerModel
from posteer.tokens.contexts import all_sequences

# --- GCG -----------------------------------------------------------------------------------------


def by_the_book(model, utility, prompt, horizon=4):
    """The paper's GCG in plain steps: one sequence at a time, no trees, no batches."""
    vocab = model.vocab_size
    objective = ExpectedUtility(utility, vocab, horizon)
    order = utility.order

    def law(rows):
        logs = []
        for continuation in all_sequences(vocab, horizon):
            tail = torch.nn.functional.one_hot(continuation, vocab).float()
            laws = model.log_predictive_of_rows(torch.cat([rows, tail])[None])[0]
            at = torch.arange(len(prompt), len(prompt) + horizon)
            logs.append(laws[at, continuation].sum())
        return torch.stack(logs)[None]

    def goal(tokens, rows):
        context = 0
        for token in tokens[len(tokens) - order :].tolist():
            context = context * vocab + token
        return objective.of_laws(law(rows), torch.tensor([context]))[0]

    def one_hot(tokens):
        return torch.nn.functional.one_hot(tokens, vocab).float()

    with torch.no_grad():
        value = float(goal(prompt, one_hot(prompt)))
    for _ in range(max(10, 2 * len(prompt))):
        rows = one_hot(prompt).requires_grad_()
        (slope,) = torch.autograd.grad(goal(prompt, rows), rows)
        best = (value, prompt)
        for place, token in enumerate(slope.argmax(1).tolist()):
            if token != int(prompt[place]):
                changed = prompt.clone()
                changed[place] = token
                with torch.no_grad():
                    now = float(goal(changed, one_hot(changed)))
                if now > best[0]:
                    best = (now, changed)
        if best[1] is prompt:
            break
        value, prompt = best
    return value, prompt


@pytest.mark.parametrize("utility", ["reverse-xent(sym-0.1)", "frequency(0.2)"])
def test_gcg_is_the_papers(utility):
    model = small("learned", vocab=2)
    problems = problems_of(model, utility, length=7, seeds=range(2))
    starts = Field(problems).random_prompts(range(2), "gcg-start")[:, 0]
    for answer, start in zip(GreedyCoordinateGradient().solve(problems), starts, strict=True):
        value, prompt = by_the_book(model, problems[0].goal, start)
        assert answer.prompt.tolist() == prompt.tolist()
        assert answer.history[-1].value == pytest.approx(value, abs=1e-6)
        assert answer.stop_reason in ("no-improvement", "step-limit")


SEARCHES = [
    GreedyCoordinateGradient(),
    GreedyCoordinateGradient(top_k=3, candidates=12, swaps=2, buffer=4, steps=6),
    GreedyCoordinateGradient(top_k=2, candidates=5, steps=6),
    CoordinateAscent(restarts=3),
    RandomSearch(prompts=70),
    BeamSearch(width=3),
    PrefixTuning(kind="simplex", steps=6, rate=0.1),
    PrefixTuning(kind="real", steps=6, rate=0.1),
    PrefixTuning(kind="soft", steps=6, rate=0.1),
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: type(s).__name__)
def test_searches_keep_value_and_prompt_together_and_pay_for_what_they_ask(search):
    model = small(vocab=4)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    problems = problems_of(model, "frequency(0.4)", length=6, seeds=range(3), horizon=3)
    metered = problems[0].model
    answers = search.solve(problems)
    for answer in answers:
        exact = expected_utility(model, problems[0].goal, answer.prompt[None], 3)
        assert len(answer.history) == answer.steps
        if not isinstance(search, PrefixTuning):  # theirs is the soft prefix's
            own = float(exact.expected_utility[0])
            assert answer.history[-1].value == pytest.approx(own, abs=1e-6)
            values = [step.value for step in answer.history if math.isfinite(step.value)]
            assert values == sorted(values)
    forward = sum(answer.queries.forward_tokens for answer in answers)
    assert forward >= metered.queries.forward_tokens, "what runs ask alike is read once"
    assert sum(a.queries.backward_tokens for a in answers) == metered.queries.backward_tokens
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, before[name]), "weights are untouched"
    again = search.solve(problems_of(model, "frequency(0.4)", length=6, seeds=range(3), horizon=3))
    assert [a.prompt.tolist() for a in again] == [a.prompt.tolist() for a in answers]
    (one,) = problems_of(model, "frequency(0.4)", length=6, seeds=[1], horizon=3)
    (alone,) = search.solve([one])
    assert same_or_tied(alone, answers[1])
    assert alone.queries == one.model.queries == answers[1].queries, "charged as if alone"


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("budget", [70, 200, 999])
def test_budgets_are_honoured(search, budget):
    problems = problems_of(
        small(vocab=3), "frequency(0.4)", length=6, seeds=[0, 5], horizon=3, max_model_tokens=budget
    )
    for answer in search.solve(problems):
        spent = answer.queries.forward_tokens + answer.queries.backward_tokens
        assert spent <= budget
        assert len(answer.prompt) == 6


def test_a_budget_that_pays_for_nothing_is_refused():
    with pytest.raises(
        InputError, match=r"5 model tokens does not pay for one prompt.*at least 20"
    ):
        elicit("beta-bernoulli", "dyck", length=6, method="gcg", max_model_tokens=5)


def test_candidates_are_never_the_prompt_itself():
    prompt = torch.tensor([0, 2, 1, 1, 0])
    slope = torch.randn(5, 3, generator=torch.Generator().manual_seed(2)).double()
    for search in SEARCHES[:3]:
        proposed, _ = search.propose(prompt, slope, torch.Generator().manual_seed(0), 10**9)
        assert bool((proposed != prompt).any(1).all())
        assert len(proposed.unique(dim=0)) == len(proposed)
        few, complete = search.propose(prompt, slope, torch.Generator().manual_seed(0), 2)
        assert len(few) <= 2
        assert not complete or len(few) == len(proposed)
    changed = single_substitutions(prompt, 3)
    assert len(changed.unique(dim=0)) == 10
    assert bool(((changed != prompt).sum(1) == 1).all())


def test_top_k_proposes_the_tokens_of_largest_gradient():
    prompt = torch.tensor([1, 0])
    slope = torch.tensor([[3.0, 9.0, 5.0, 1.0], [0.0, 7.0, 2.0, 8.0]]).double()
    stream = torch.Generator()
    proposed, complete = GreedyCoordinateGradient(top_k=2).propose(prompt, slope, stream, 10**9)
    assert complete
    found = proposed.tolist()
    assert sorted(found) == [[0, 0], [1, 1], [1, 3], [2, 0]]
    assert found[0] == [1, 3], "the largest gain first"
    one, _ = GreedyCoordinateGradient().propose(prompt, slope, stream, 10**9)
    assert one.tolist() == [[1, 3]], "the first position keeps its own top token"


def test_enough_coordinate_restarts_find_the_optimum():
    model = small("learned", vocab=2)
    best = landscape(model, Dyck(), 8, 4)
    found = CoordinateAscent(restarts=40).solve(problems_of(model, length=8, seeds=[0]))[0]
    assert found.history[-1].value == pytest.approx(best.optimum, abs=1e-6)
    wide = BeamSearch(width=256).solve(problems_of(model, length=8, seeds=[0]))[0]
    assert wide.stop_reason == "complete"
    assert wide.history[-1].value == pytest.approx(best.optimum, abs=1e-6), "it holds every prompt"


def test_a_buffer_starts_wide_and_sampling_goes_on_after_a_poor_draw():
    model = small(vocab=4)
    best = landscape(model, open_utility("frequency(0.4)", model), 4, 3).optimum
    for buffer in (1, 8):
        search = GreedyCoordinateGradient(top_k=4, candidates=3, steps=60, buffer=buffer)
        problems = problems_of(model, "frequency(0.4)", length=4, seeds=range(5), horizon=3)
        for answer in search.solve(problems):
            assert answer.history[0].candidates == buffer
            assert answer.stop_reason == "step-limit"
            stalls = [a.value == b.value for a, b in itertools.pairwise(answer.history)]
            assert any(stalls[:-1]), "a draw without gain does not end the run"
            assert answer.history[-1].value > best - 0.02


def test_nothing_is_tried_twice_when_proposals_are_complete():
    """Two tokens, all flips proposed: a buffer of eight is worked through and then the run ends."""
    model = small(vocab=2)
    search = GreedyCoordinateGradient(top_k=2, buffer=8, steps=500)
    for answer in search.solve(problems_of(model, length=5, seeds=range(3))):
        assert answer.stop_reason == "no-improvement"
        assert answer.steps < 40


def test_impossible_prompts_attract_no_search():
    """Two coins that always show one face: only 00..0 and 11..1 can be seen."""
    for method in ("coordinate(restarts=9)", "beam", "random(prompts=64)"):
        found = elicit("exact:coins(0,1)", "dyck", length=4, method=method)
        assert found.prompt in ([0] * 4, [1] * 4)
        assert found.expected_utility == 0.0


def test_where_all_values_are_minus_infinity_no_search_has_an_answer():
    def heads(tokens):
        return torch.tensor([[1.0, 0.0]]).double().expand(len(tokens), 2)

    model = FunctionModel(heads, vocab_size=2, order=0)
    for method in ("coordinate", "beam", "random(prompts=4)", "exhaustive"):
        with pytest.raises(InputError, match="expected a finite number"):
            elicit(model, "forward-xent(tau-0.3)", length=4, method=method)


def test_beams_do_not_depend_on_their_batch():
    utilities = ["dyck", "reverse-xent(sym-0.1)"]
    method = "beam(width=2)"
    mixed = elicit_many("beta-bernoulli", utilities, length=7, method=method, seeds=range(3))
    for run in mixed:
        alone = elicit("beta-bernoulli", run.utility, length=7, method=method, seed=run.seed)
        assert alone.expected_utility == pytest.approx(run.expected_utility, abs=TIE)
        assert alone.prompt != run.prompt or alone.cost == run.cost


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: type(s).__name__)
def test_running_out_of_memory_changes_neither_answers_nor_costs(search, monkeypatch):
    plenty = search.solve(
        problems_of(small(vocab=3), "frequency(0.4)", length=5, seeds=range(4), horizon=3)
    )
    model = small(vocab=3)
    for name in (
        "continuation_log_probs",
        "continuation_log_probs_of_rows",
        "continuation_log_probs_of_embeddings",
    ):
        read = getattr(model, name)

        def tight(some, horizon, read=read):
            if len(some) > 3:
                raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried ..")
            return read(some, horizon)

        monkeypatch.setattr(model, name, tight)
    problems = problems_of(model, "frequency(0.4)", length=5, seeds=range(4), horizon=3)
    scarce = search.solve(problems)
    assert all(map(same_or_tied, scarce, plenty))
    assert [answer.queries for answer in scarce] == [answer.queries for answer in plenty]


# --- soft prefixes -------------------------------------------------------------------------------


def test_a_soft_prefix_at_a_vertex_is_the_hard_prompt():
    model = small("learned", vocab=3)
    prompts = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
    rows = torch.nn.functional.one_hot(prompts, 3).float()
    hard = model.continuation_log_probs(prompts, 3)
    assert torch.allclose(model.continuation_log_probs_of_rows(rows, 3), hard, atol=1e-5)
    embedded = model.network.tokens(prompts)
    soft = model.continuation_log_probs_of_embeddings(embedded, 3)
    assert torch.allclose(soft, hard, atol=1e-5)


@pytest.mark.parametrize("kind", ["simplex", "real", "soft"])
def test_soft_prefixes_reach_past_the_best_hard_prompt(kind):
    """Hard prompts are among the soft ones, so tuning from some seed must do as well."""
    model = small("learned", vocab=2)
    best = landscape(model, Dyck(), 4, 4).optimum
    problems = problems_of(model, length=4, seeds=range(6))
    answers = PrefixTuning(kind=kind, steps=150, rate=0.1).solve(problems)
    assert max(answer.surrogate for answer in answers) > best - 0.02
    for answer in answers:
        tuning = answer.history[:-1]  # the last entry is the hard prompt's
        assert answer.surrogate == pytest.approx(max(s.value for s in tuning), abs=1e-9)
        value = expected_utility(model, Dyck(), answer.prompt[None], 4).expected_utility
        assert answer.history[-1].value == pytest.approx(float(value[0]), abs=1e-6)


@pytest.mark.parametrize("kind", ["simplex", "real", "soft"])
def test_a_soft_prefix_does_not_depend_on_the_number_of_threads(kind):
    """To the bit: Adam makes a step of a rounding error, and another prompt of that."""
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            problems = problems_of(open_model("urn"), length=12, seeds=(0,))
            found += PrefixTuning(kind=kind, steps=4, rate=0.1).solve(problems)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len({tuple(one.prompt.tolist()) for one in found}) == 1
    assert len({one.surrogate for one in found}) == 1


# --- front door ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gcg", "simplex-pt", "real-pt", "soft-pt"])
def test_models_without_gradients_are_refused_by_name(method):
    """And what could be asked instead is named: all that the problem has the needs of."""
    latents = "classes, classes-analytic, climb, climb-analytic, ppt, ppt-rb, ppt-analytic, "
    latents += "ppt-rb-analytic"
    searches = "coordinate, random, beam, exhaustive"
    refused = f"{method}: needs gradients and exact:urn gives none: use auto"
    with pytest.raises(InputError, match=rf"^{refused}, {latents}, {searches}$"):
        elicit("exact:urn", "dyck", length=6, method=method)
    with pytest.raises(InputError, match=rf"^{refused}, {searches}$"):
        elicit("exact:urn", "forward-xent(tau-0.2)", length=6, method=method)


@pytest.mark.parametrize("method", ["coordinate(restarts=2)", "beam", "random(prompts=30)"])
def test_searches_run_on_any_model(method):
    found = elicit("exact:markov(vocab=3,order=2)", "dyck", length=6, method=method)
    assert found.rank >= 1
    assert found.expected_utility <= found.optimum + 1e-9


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        ("gcg(top-k=0)", "top-k 0"),
        ("gcg(swaps=2)", "give candidates too"),
        ("gcg(steps=-1)", "steps -1"),
        ("gcg(width=3)", "unknown setting"),
        ("coordinate(restarts=0)", "restarts 0"),
        ("random(prompts=0)", "prompts 0"),
        ("beam(width=0)", "width 0"),
        ("soft-pt(rate=0)", "must be positive"),
        ("real-pt(rate=1e300)", "at most 1000"),
        ("gcg(candidates=10,swaps=99999999999999999999)", "at most 1000000"),
        ("simplex-pt(steps=0)", "steps 0"),
    ],
)
def test_bad_settings_are_refused(method, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit("beta-bernoulli", "dyck", length=6, method=method)


def test_horizons_past_enumeration_are_refused():
    with pytest.raises(InputError, match=r"2\*\*20 continuations are too many"):
        elicit("beta-bernoulli", "frequency(0.3)", length=6, horizon=20, method="gcg")
    with pytest.raises(InputError, match="tree of 65,534 tokens: expected at most 256"):
        elicit("beta-bernoulli", "frequency(0.3)", length=6, horizon=16, method="gcg")
    with pytest.raises(InputError, match="too many to try"):
        elicit("beta-bernoulli", "dyck", length=20_000, method="exhaustive", max_model_tokens=10)


def test_batches_of_runs_are_one_programme():
    """Utilities and seeds together give what each gives alone."""
    utilities = ["dyck", "frequency(0.3)", "reverse-xent(tau-0.2)"]
    together = elicit_many("beta-bernoulli", utilities, length=8, method="gcg", seeds=[0, 1])
    for run in together:
        alone = elicit("beta-bernoulli", run.utility, length=8, method="gcg", seed=run.seed)
        assert alone.expected_utility == pytest.approx(run.expected_utility, abs=TIE)
        assert alone.prompt != run.prompt or alone.cost == run.cost


def test_transformers_are_differentiable_and_say_so():
    assert Can.ONE_HOTS in Metered(small()).can
    assert Can.ONE_HOTS not in Metered(open_model("exact:urn")).can
    assert isinstance(open_model("urn"), TransformerModel)


# --- against other implementations ---------------------------------------------------------------


def test_candidates_are_those_of_nanogcg():
    """Its sampler, given the gradient of the loss -J, draws exactly our top-1 substitutions (and
    the prompt itself, which ours never proposes)."""
    from nanogcg.gcg import sample_ids_from_grad  # seconds: not while collecting

    model = small("learned", vocab=5)
    problems = problems_of(model, "frequency(0.4)", length=7, seeds=[0], horizon=2)
    prompt = torch.randint(5, (7,), generator=torch.Generator().manual_seed(3))
    _, slopes = Field(problems).gradients(torch.tensor([0]), prompt[None])
    stream = torch.Generator().manual_seed(0)
    for top_k in (1, 5):
        ours, _ = GreedyCoordinateGradient(top_k=top_k).propose(prompt, slopes[0], stream, 10**9)
        torch.manual_seed(0)
        theirs = sample_ids_from_grad(prompt, -slopes[0].clone(), 4000, top_k, 1, None)
        drawn = {tuple(row) for row in theirs.tolist()} - {tuple(prompt.tolist())}
        assert drawn == {tuple(row) for row in ours.tolist()}
