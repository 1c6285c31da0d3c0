import itertools
from pathlib import Path

import pytest
import torch
from oracles import dirichlet_sequence_probability, sequences, value_of

from posteer.core.errors import InputError
from posteer.core.limits import TIE
from posteer.evaluation import (
    PromptLandscape,
    expected_utilities,
    expected_utility,
    landscape,
    landscapes,
)
from posteer.families.markov.prompt_classes import prompt_classes
from posteer.goals.utilities import open_utility
from posteer.models import Metered, Model, load, open_model
from posteer.sweeps.results import read_rows
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

RECORDS = Path(__file__).parent.parent / "docs" / "records"
MODELS = [
    ("exact:beta-bernoulli", 2, 0, [[0.5, 0.5]]),
    ("exact:urn", 2, 1, [[0.5, 0.5]] * 2),
    ("exact:markov(vocab=3,order=1,concentration=0.3)", 3, 1, [[0.3] * 3] * 3),
]
UTILITIES = [("dyck", value_of("dyck")), ("frequency(0.3)", value_of("frequency", share=0.3))]


def brute_force(prompt, value, concentration, order, vocab, horizon):
    evidence = dirichlet_sequence_probability(prompt, concentration, order, vocab)
    return sum(
        dirichlet_sequence_probability(prompt + y, concentration, order, vocab)
        / evidence
        * value(prompt)(y)
        for y in sequences(vocab, horizon)
    )


class OnlyPredicts(Model):
    """A model that is not known to be exact: evaluation must read every prompt."""

    def __init__(self, name):
        self._model = open_model(name)
        self.name, self.vocab_size = name, self._model.vocab_size
        self.family = self._model.family

    def start(self, batch, capacity=16):
        return self._model.start(batch, capacity)

    def advance(self, state, tokens):
        return self._model.advance(state, tokens)


@pytest.mark.parametrize(("name", "vocab", "order", "concentration"), MODELS)
@pytest.mark.parametrize(("text", "value"), UTILITIES)
def test_expected_utility_against_all_continuations(name, vocab, order, concentration, text, value):
    model, length, horizon = open_model(name), order + 3, 3
    utility = open_utility(text, model)
    prompts = all_sequences(vocab, length)
    found = expected_utility(model, utility, prompts, horizon)
    assert bool((found.standard_error == 0).all())
    for row, prompt in enumerate(sequences(vocab, length)):
        expected = brute_force(prompt, value, concentration, order, vocab, horizon)
        assert float(found.expected_utility[row]) == pytest.approx(expected, abs=1e-12)


def test_a_markov_target_scores_the_first_token_from_the_prompts_last_context():
    model = open_model("exact:urn")
    target = [[0.1, 0.9], [0.7, 0.3]]
    utility = open_utility(f"reverse-xent({target})", model)
    value = value_of("reverse", target=target)
    prompts = all_sequences(2, 4)
    found = expected_utility(model, utility, prompts, 3).expected_utility
    for row, prompt in enumerate(sequences(2, 4)):
        expected = brute_force(prompt, value, [[0.5, 0.5]] * 2, 1, 2, 3)
        assert float(found[row]) == pytest.approx(expected, abs=1e-12)


def test_the_prefix_tree_is_read_once():
    """64 prompts of 6 tokens, then 2 + 4 + 8 inner nodes each: not 16 continuations of 4."""
    model = Metered(open_model("exact:urn"))
    expected_utility(model, open_utility("dyck", model), all_sequences(2, 6), 4)
    assert model.queries.forward_tokens == 64 * (6 + 2 + 4 + 8)


def test_monte_carlo_when_continuations_are_too_many():
    """Horizon 30 has 2**30 continuations; the exact mean of the share of ones is the predictive.

    frequency(0) is -(share)^2; bound at six standard errors.
    """
    model = open_model("exact:beta-bernoulli")
    share = lambda y: sum(y) / len(y)  # noqa: E731
    prompt = torch.tensor([[1, 1, 1, 0]])
    found = expected_utility(model, open_utility(share, model), prompt, 30, n_rollouts=4000)
    error = float(found.standard_error[0])
    assert 0 < error < 0.01
    assert abs(float(found.expected_utility[0]) - 3.5 / 5) < 6 * error
    again = expected_utility(model, open_utility(share, model), prompt, 30, n_rollouts=4000)
    assert torch.equal(found.expected_utility, again.expected_utility)


def test_2452_classes_at_length_fifty():
    classes = prompt_classes(ContextSpace(2, 1), 50, 1)
    assert len(classes) == 2452
    assert sum(classes.sizes) == 2**50


@pytest.mark.parametrize(
    ("vocab", "order", "length", "wide"),
    [(2, 0, 5, 0), (2, 0, 5, 2), (2, 1, 6, 1), (2, 2, 6, 2), (3, 1, 5, 1), (2, 1, 6, 2)],
)
def test_classes_against_grouping_all_prompts(vocab, order, length, wide):
    space, wider = ContextSpace(vocab, order), ContextSpace(vocab, wide)
    classes = prompt_classes(space, length, wide)
    prompts = all_sequences(vocab, length)
    first, last = wider.encode(prompts[:, :wide]), wider.suffix(prompts)
    keys = torch.cat(
        [count_transitions(space, prompts).flatten(1).long(), first[:, None], last[:, None]], 1
    )
    groups = {tuple(key): 0 for key in keys.tolist()}
    for key in keys.tolist():
        groups[tuple(key)] += 1
    assert len(classes) == len(groups)
    for row in range(len(classes)):
        prompt = classes.prompt(row)
        assert torch.equal(count_transitions(space, prompt).long(), classes.counts[row])
        assert int(wider.suffix(prompt)) == int(classes.last[row])
        start = int(wider.encode(prompt[:wide]))
        key = (*classes.counts[row].flatten().tolist(), start, int(classes.last[row]))
        assert groups[key] == classes.sizes[row]


def test_too_many_classes_are_declined():
    assert prompt_classes(ContextSpace(2, 1), 50, 1, limit=2000) is None
    assert prompt_classes(ContextSpace(4, 2), 60, 2) is None
    assert prompt_classes(ContextSpace(2, 1), 400, 1) is None


@pytest.mark.parametrize("text", ["dyck", "reverse-xent(dir-4)", "frequency(0.3)"])
@pytest.mark.parametrize("name", ["exact:urn", "exact:beta-bernoulli", "exact:coins(0.2,0.7)"])
def test_classes_and_plain_enumeration_rank_alike(name, text):
    exact, plain = open_model(name), OnlyPredicts(name)
    utility = open_utility(text, exact)
    by_class, by_prompt = landscape(exact, utility, 6, 4), landscape(plain, utility, 6, 4)
    assert by_class.n_prompts == by_prompt.n_prompts == 64
    assert by_class.optimum == pytest.approx(by_prompt.optimum, abs=1e-12)
    for value in by_prompt.values.tolist():
        assert by_class.rank(value) == by_prompt.rank(value)
    best = expected_utility(exact, utility, by_class.best_prompt[None], 4)
    assert float(best.expected_utility[0]) == pytest.approx(by_class.optimum, abs=1e-12)


def test_ties_share_a_rank():
    """The paper's 1e-5, of the spread, which is 1 here."""
    values = torch.tensor([1.0, 1.0 - TIE / 2, 3 * TIE, 0.0]).double()
    field = PromptLandscape(values, [1, 2, 3, 4], torch.tensor([0]))
    assert [field.rank(v) for v in values.tolist()] == [1, 1, 4, 7]


@pytest.mark.slow
def test_the_ranks_of_the_papers_runs_are_kept():
    """They were told by an absolute tie of 1e-5."""
    known = {}
    for row in read_rows(RECORDS / "paper.parquet"):
        if row["rank"] is not None:
            prompt = tuple(map(int, row["prompt"]))
            known.setdefault(row["model"], set()).add((row["utility"], prompt, row["rank"]))
    assert set(known) == {"beta-bernoulli", "urn"}
    for name, found in known.items():
        model, runs = open_model(name), sorted(found)
        goals = {text: open_utility(text, model) for text, _, _ in runs}
        fields = dict(zip(goals, landscapes(model, list(goals.values()), 6, 4), strict=True))
        prompts = torch.tensor([prompt for _, prompt, _ in runs])
        judged = expected_utilities(
            model, [goals[text] for text, _, _ in runs], prompts, 4, seeds=[0] * len(runs)
        )
        for (text, prompt, rank), one in zip(runs, judged, strict=True):
            assert fields[text].rank(float(one.expected_utility[0])) == rank, (name, text, prompt)


class Moved:
    """A utility times a scale, plus a constant."""

    name, order = "moved", 0

    def __init__(self, scale, constant):
        self.scale, self.constant = scale, constant

    def __call__(self, continuations, contexts):
        share = (continuations == 1).double().mean(-1)
        return self.scale * (share * (1 - share) + share**2 / 7) + self.constant

    def finite_state(self, vocab_size, horizon):
        return None


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 1e6])
@pytest.mark.parametrize("constant", [0.0, 1.0, -3.0])
def test_ranks_do_not_know_the_scale_of_a_utility(scale, constant):
    """The constant in units of the scale; past that rounding would be all there is."""
    for model in (open_model("exact:urn"), OnlyPredicts("exact:urn")):
        plain = landscape(model, Moved(1.0, 0.0), 6, 4)
        moved = landscape(model, Moved(scale, constant * scale), 6, 4)
        ranks = [plain.rank(value) for value in plain.values.tolist()]
        assert [moved.rank(value) for value in moved.values.tolist()] == ranks
        assert len(set(ranks)) > 10 and min(ranks) == 1


def test_equal_prompts_tie_whatever_arithmetic_makes_of_them():
    """A utility that all prompts share: what is left is rounding, and no prompt is better."""
    for model in (open_model("exact:urn"), load("beta-bernoulli")):
        for scale in (1e-6, 1.0, 1e6):
            field = landscape(model, Moved(0.0, scale), 5, 4)
            assert {field.rank(value) for value in field.values.tolist()} == {1}


def test_published_optimum_at_length_fifty():
    """DESIGN's figure for Dyck on the idealised urn, from all 2**50 prompts."""
    model = open_model("exact:urn")
    field = landscape(model, open_utility("dyck", model), 50, 4)
    assert field.optimum == pytest.approx(0.926, abs=5e-4)
    assert field.best_prompt.tolist() == [0, 1] * 25


def test_what_cannot_be_enumerated_is_unknown():
    plain = OnlyPredicts("exact:urn")
    assert landscape(plain, open_utility("dyck", plain), 20, 4) is None
    exact = open_model("exact:urn")
    assert landscape(exact, open_utility("dyck", exact), 6, 40) is None


@pytest.mark.parametrize(
    ("prompt", "horizon", "complaint"),
    [([0, 2, 1], 4, "symbol 2"), ([0], 4, "more than the order"), ([0, 1], 0, "horizon 0")],
)
def test_bad_prompts_are_refused(prompt, horizon, complaint):
    model = open_model("exact:urn")
    with pytest.raises(InputError, match=complaint):
        expected_utility(model, open_utility("dyck", model), torch.tensor([prompt]), horizon)


def test_models_are_incremental_and_whole_alike():
    """Logarithms of size one to three: a few units in the last place between batches."""
    for name, *_ in MODELS:
        model = open_model(name)
        tokens = torch.tensor(list(itertools.islice(sequences(model.vocab_size, 5), 7)))
        laws = model.log_predictive(tokens)
        state = model.start(len(tokens))
        for t in range(5):
            assert torch.allclose(laws[:, t], state.log_probs, rtol=0, atol=1e-14)
            law, state = model.advance(state, tokens[:, t])
            assert torch.allclose(law, state.log_probs, rtol=0, atol=1e-14)
        assert torch.allclose(laws[:, 5], state.log_probs, rtol=0, atol=1e-14)
        forked = state.select(torch.tensor([2, 2, 0]))
        assert torch.allclose(forked.log_probs, state.log_probs[[2, 2, 0]], rtol=0, atol=1e-14)


def test_exactness_does_not_depend_on_how_many_prompts_are_asked_for():
    model = open_model("exact:urn")
    utility = open_utility("dyck", model)
    prompts = torch.zeros(70, 6, dtype=torch.long)
    many = expected_utility(model, utility, prompts, 12)
    one = expected_utility(model, utility, prompts[:1], 12)
    assert float(many.standard_error.max()) == float(one.standard_error[0]) == 0.0
    assert float(many.expected_utility[-1]) == pytest.approx(float(one.expected_utility[0]))


def test_expected_utility_at_three_tokens_order_two_horizon_four():
    """The largest case of the oracles, (3, 2, 6, 4), on a spread of prompts."""
    table = [[0.3 + 0.1 * (c % 4), 0.7, 0.2] for c in range(9)]
    model = open_model(f"exact:markov(vocab=3,order=2,concentration={table})")
    utility = open_utility("dyck", model)
    prompts = all_sequences(3, 6)[::61]
    found = expected_utility(model, utility, prompts, 4).expected_utility
    for row, prompt in enumerate(prompts.tolist()):
        expected = brute_force(tuple(prompt), value_of("dyck"), table, 2, 3, 4)
        assert float(found[row]) == pytest.approx(expected, abs=1e-12)


def test_long_rankings_report_their_progress():
    seen = []
    model = open_model("exact:urn")
    report = lambda what, done, total: seen.append((what, done, total))  # noqa: E731
    landscape(model, open_utility("dyck", model), 50, 10, report)
    assert seen[-1] == ("ranking all prompts", 2452, 2452)
    assert len(seen) > 1
