"""What a run asks of a model: never more than its budget, and exactly what it says.

Models here count for themselves: a model token is one position of one history at which a law is
asked for.
"""

from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import small

from posteer.api import compare, elicit, elicit_batch, elicit_many, evaluate
from posteer.banks import DrawPlan, draw_bank
from posteer.core.errors import InputError
from posteer.core.limits import RANKED_TOKENS
from posteer.methods.answers import Answer, Asked
from posteer.methods.protocol import Needs, Request, Work
from posteer.models import FunctionModel, Metered
from posteer.models.meter import Spending
from posteer.models.protocol import Can


class Coin:
    """Next tokens by Laplace's rule from what was sent; counts histories, and positions sent."""

    def __init__(self):
        self.asked = self.sent = self.longest = 0

    def __call__(self, tokens):
        length = tokens.shape[1]
        self.asked += len(tokens) * (length > 0)
        self.sent += tokens.numel()
        self.longest = max(self.longest, length)
        ones = ((tokens == 1).sum(1).double() + 1) / (length + 2)
        return torch.stack([1 - ones, ones], 1)

    def model(self, **more):
        return FunctionModel(self, vocab_size=2, order=0, name="coin", **more)


class Network:
    """A small network behind the plain protocol, not the same in any batch; counts for itself."""

    vocab_size, order, name = 2, 1, "counting network"

    def __init__(self):
        self.inner = small(vocab=2, width=8, heads=2, feedforward=8, layers=1)
        self.asked, self.family = 0, self.inner.family

    def model(self, **_more):
        return self

    def batch_invariant(self, n_tokens):
        return False

    def start(self, batch, capacity=16):
        return self.inner.start(batch, capacity)

    def advance(self, state, tokens):
        self.asked += len(tokens)
        return self.inner.advance(state, tokens)

    def log_predictive(self, tokens):
        self.asked += tokens.numel()
        return self.inner.log_predictive(tokens)

    def embeddings(self):
        return self.inner.embeddings()

    def continuation_log_probs(self, prompts, horizon):
        self.asked += len(prompts) * (prompts.shape[1] + tree(horizon))
        return self.inner.continuation_log_probs(prompts, horizon)

    def shared_log_probs(self, prompts, horizon):
        rows = {tuple(row) for row in prompts.tolist()}
        prefixes = {row[:n] for row in rows for n in range(1, len(row) + 1)}
        self.asked += len(prefixes) + len(rows) * tree(horizon)
        return self.inner.shared_log_probs(prompts, horizon)

    def continuation_log_probs_of_rows(self, rows, horizon):
        self.asked += 2 * len(rows) * (rows.shape[1] + tree(horizon))
        return self.inner.continuation_log_probs_of_rows(rows, horizon)

    def continuation_log_probs_of_embeddings(self, embedded, horizon):
        self.asked += 2 * len(embedded) * (embedded.shape[1] + tree(horizon))
        return self.inner.continuation_log_probs_of_embeddings(embedded, horizon)


def tree(horizon):
    """Binary continuations that are read: all but their last tokens."""
    return 2**horizon - 2


def price(asked):
    """Tokens that one prompt and all its continuations take, or 20,000 that are drawn."""
    horizon = asked["horizon"]
    read = tree(horizon) if horizon <= 16 else 20_000 * (horizon - 1)
    return len(asked.get("context", "")) + asked["length"] + read


SEARCHES = ("coordinate(restarts=2)", "random(prompts=20)", "beam(width=3)", "exhaustive")
BY_GRADIENT = ("gcg(steps=3)", "gcg(top-k=1,candidates=4,swaps=2,buffer=2,steps=3)")
SOFT = ("simplex-pt(steps=3)", "soft-pt(steps=3)")
ON_LATENTS = (
    "auto",
    "classes(samples=33,rollout-length=12,estimator=importance)",
    "classes(samples=70,rollout-length=9,unvisited=predictive,estimator=importance)",
    "classes(seconds=1e-9,estimator=importance)",
    "ppt-rb(samples=40,rollout-length=10,steps=2)",
)


def charged(cost):
    return cost["forward_tokens"] + cost["backward_tokens"] + cost["drawn_tokens"]


ASKED = {
    "kind": st.sampled_from([Coin, Network]),
    "method": st.sampled_from(SEARCHES + BY_GRADIENT + SOFT + ON_LATENTS),
    "length": st.integers(2, 6),
    "horizon": st.integers(1, 5),
    "context": st.sampled_from(["", "", "0", "0110"]),
    "verify": st.sampled_from([0, 0, 1, 3, 9]),
    "budget": st.one_of(st.none(), st.integers(1, 600), st.integers(600, 9000)),
    "rank": st.sampled_from([None, None, True, False]),
}


@given(**ASKED)
@settings(max_examples=20)
def test_no_budget_is_exceeded_and_every_token_is_accounted_for(**asked):
    check_what_is_asked(**asked)


def test_what_neither_latents_nor_a_search_can_do_is_refused():
    """Continuations too many to enumerate, and a budget that pays for no bank."""
    with pytest.raises(
        InputError, match=r"auto: 2\*\*17 .* a bank of latents would take [\d,]+ model"
    ):
        elicit(Coin().model(), "frequency(0.4)", length=2, horizon=17, max_model_tokens=9000)


@pytest.mark.slow
@given(**{**ASKED, "horizon": st.sampled_from([1, 2, 3, 4, 5, 17])})
@settings(max_examples=100)
def test_nor_in_many_more_cases(**asked):
    check_what_is_asked(**asked)


def check_what_is_asked(kind, method, length, horizon, context, verify, budget, rank):
    """Against the model's own count; what judging takes is known from the question alone."""
    counting = kind()
    asked = {"length": length, "horizon": horizon, "context": context, "method": method}
    if budget is None and method in ("auto", ON_LATENTS[3]):
        budget = 9000  # else minutes of rollouts
    more = {"verify": verify, "max_model_tokens": budget, "rank": rank}
    try:
        found = elicit(counting.model(), "frequency(0.4)", **asked, **more)
    except InputError:
        assert budget is None or counting.asked <= budget, "what is refused has not asked for more"
        return
    cost = found.cost
    assert budget is None or charged(cost) <= budget
    ranked = 0 if found.rank is None else 2**length * price(asked)
    assert cost["judging_tokens"] == ranked + price(asked)
    assert counting.asked == charged(cost) + cost["judging_tokens"]
    assert (found.rank is not None) == (found.best_prompt is not None)
    if rank is not None:
        assert (found.rank is not None) == (rank and horizon <= 16)
    elif budget is not None and found.rank is not None:
        assert charged(cost) + cost["judging_tokens"] <= budget
    if found.bank is not None:
        assert len(found.bank) == found.to_json()["drawn"]["rollouts"]
        assert found.bank.tokens == cost["drawn_tokens"]


@pytest.mark.parametrize("context", ["", "0110"])
@pytest.mark.parametrize("left", [0, 1])
def test_sampled_verification_reads_context_and_prompt_once(context, left):
    """Past enumeration: two candidates of 2,000 continuations each, not a token more."""
    coin, length, horizon = Coin(), 8, 18
    draw = 64 * (len(context) + 19)
    each = len(context) + length + 2000 * (horizon - 1)
    found = elicit(
        coin.model(),
        "frequency(0.4)",
        length=length,
        horizon=horizon,
        context=context,
        method="classes(samples=64,rollout-length=20,estimator=importance)",
        verify=2,
        max_model_tokens=draw + 2 * each - left,
    )
    assert found.verified.outcome is (Asked.NO_BUDGET if left else Asked.RANKED)
    assert found.cost["forward_tokens"] == (0 if left else 2 * each)
    assert found.cost["drawn_tokens"] == draw
    assert coin.asked == charged(found.cost) + found.cost["judging_tokens"]


def test_a_block_is_paid_for_whole():
    """33 rollouts of 126 tokens are read as 64 where a batch changes the bits."""
    asked = {"length": 4, "method": "ppt-rb(samples=33,rollout-length=127,steps=2)"}
    network = Network()
    with pytest.raises(InputError, match="takes 8,064 model tokens and the budget is 4,158"):
        elicit(network, "dyck", **asked, max_model_tokens=33 * 126)
    assert network.asked == 0
    assert elicit(network, "dyck", **asked, max_model_tokens=8064).cost["drawn_tokens"] == 8064
    found = elicit(Coin().model(), "dyck", **asked, max_model_tokens=33 * 126)
    assert found.cost["drawn_tokens"] == 33 * 126 and found.rank is None


@pytest.mark.parametrize("kind", [Coin, Network])
def test_runs_of_a_batch_have_a_budget_each(kind):
    counting = kind()
    asked = {"length": 5, "method": "coordinate", "max_model_tokens": 300, "rank": False}
    runs = elicit_many(counting.model(), ["dyck", "frequency(0.4)"], seeds=range(3), **asked)
    assert all(charged(run.cost) <= 300 for run in runs)
    different = {tuple(run.prompt) for run in runs}
    most = sum(charged(run.cost) for run in runs) + len(different) * (5 + 14)
    assert counting.asked < most, "runs that start alike share what they read"
    for run in runs:
        alone = elicit(kind().model(), run.utility, seed=run.seed, **asked)
        assert charged(alone.cost) == charged(run.cost), "but each is charged as if alone"


@dataclass(frozen=True)
class Greedy:
    """A method that plans nothing: it asks until it is stopped."""

    needs: Needs = field(default_factory=Needs)

    def forecast(self, problem, together):
        return Work(None)

    def solve(self, problems, progress=None):
        model, prompt = problems[0].model, torch.zeros(1, 4, dtype=torch.long)
        for _ in range(100):
            model.log_predictive(prompt)
        return [Answer(prompt=prompt[0], queries=replace(model.queries)) for _ in problems]


def test_the_meter_stops_a_method_that_does_not_plan():
    coin = Coin()
    request = Request(
        model=coin.model(), utility="dyck", length=4, method=Greedy(), max_model_tokens=30
    )
    with pytest.raises(InputError, match="4 more model tokens are asked for and the budget has 2"):
        elicit_batch([request])
    assert coin.asked == 28
    assert elicit_batch([replace(request, max_model_tokens=400)])[0].cost["forward_tokens"] == 400


def test_limits_nest_and_end():
    spending = Spending(most=10)
    spending.charge(2, 1)
    with spending.within(5), spending.within(100):
        assert spending.left == 5
        with pytest.raises(InputError, match="6 more"):
            spending.charge(3, 3)
    assert spending.left == 7 and spending.asked.total == 3


def test_ranking_a_model_that_is_not_exact_is_asked_for_or_cheap():
    """1,024 prompts of 24 tokens are past the limit, the paper's 64 are not."""
    coin = Coin()
    quiet = elicit(coin.model(), "frequency(0.4)", length=10, method="random(prompts=5)")
    assert quiet.rank is quiet.optimum is quiet.best_prompt is None
    assert coin.asked == 5 * 24 + 24 and quiet.cost["judging_tokens"] == 24
    assert 1024 * 24 > RANKED_TOKENS > 64 * 20
    loud = elicit(coin.model(), "frequency(0.4)", length=10, method="random(prompts=5)", rank=True)
    assert loud.cost["judging_tokens"] == 1025 * 24
    cheap = elicit(coin.model(), "frequency(0.4)", length=6, method="random(prompts=5)")
    assert cheap.rank is not None and cheap.cost["judging_tokens"] == 65 * 20
    dear = elicit(
        *(coin.model(), "frequency(0.4)"),
        **{"length": 6, "method": "random(prompts=5)", "max_model_tokens": 64 * 20},
    )
    assert dear.rank is None, "the search and the ranking do not both fit into the budget"


def test_the_best_prompt_that_ranking_saw_is_given():
    """Laplace's rule by hand: k ones of m, then four tokens of which two should be ones."""

    def value(prompt):
        chance = [0.0] * 5
        for y in range(16):
            bits, ones, zeros, p = [y >> i & 1 for i in range(4)], sum(prompt) + 1, 1, 1.0
            zeros += len(prompt) - sum(prompt)
            for bit in bits:
                p *= (ones if bit else zeros) / (ones + zeros)
                ones, zeros = ones + bit, zeros + 1 - bit
            chance[sum(bits)] += p
        return chance[2]

    def two_ones(continuation):
        return float(sum(continuation) == 2)

    prompts = [tuple(n >> i & 1 for i in range(5)) for n in range(32)]
    best = max(map(value, prompts))
    found = elicit(Coin().model(), two_ones, length=5, method="random(prompts=1)")
    assert found.optimum == pytest.approx(best, abs=1e-12)
    assert value(tuple(found.best_prompt)) == pytest.approx(best, abs=1e-12)
    assert found.to_json()["best_prompt"] == found.best_prompt
    better = sum(value(prompt) > value(tuple(found.prompt)) + 1e-5 for prompt in prompts)
    assert found.rank == 1 + better
    judged = evaluate(Coin().model(), two_ones, [0] * 5)
    assert judged.best_prompt == found.best_prompt and judged.judging_tokens == 33 * 19
    assert evaluate(Coin().model(), two_ones, [0] * 5, rank=False).rank is None
    assert evaluate("exact:urn", "dyck", [0] * 20, horizon=4).rank is not None, "exact is free"
    assert evaluate("exact:urn", "dyck", [0] * 20, rank=False).rank is None


def test_an_optimum_that_one_method_paid_for_is_shown():
    asked = {"methods": ["random(prompts=60)", "beam(width=1)"], "seeds": 1}
    both = compare(Coin().model(), "dyck", length=6, max_model_tokens=64 * 20 + 300, **asked)
    ranked = [method.runs[0].rank is not None for method in both.methods]
    assert ranked == [False, True] and both.optimum is not None


def test_memory_that_runs_out_while_rolling_out_costs_nothing_more():

    class Direct(FunctionModel):
        """Errors of memory as a network raises them."""

        def advance(self, state, tokens):
            if len(tokens) > 30:
                raise torch.OutOfMemoryError
            return super().advance(state, tokens)

    coin = Coin()
    meter = Metered(Direct(coin, vocab_size=2, order=0), Spending(most=100 * 19))
    bank = draw_bank(meter, DrawPlan(n_samples=100, rollout_length=20))
    assert bank.tokens == meter.queries.total == coin.asked == 100 * 19


def test_abilities_of_the_counting_network():
    from posteer.models import open_model

    can = open_model(Network()).can
    assert can == Can.READ_TREES | Can.ONE_HOTS | Can.EMBED
