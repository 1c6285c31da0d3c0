import math

import pytest

import posteer
from posteer.elicitation import METHODS, elicit, elicit_many, judge, open_method
from posteer.errors import InputError
from posteer.steering.ppt import PosteriorPrefixTuning

PROMISED = {
    "model",
    "utility",
    "horizon",
    "length",
    "method",
    "seed",
    "prompt",
    "expected_utility",
    "standard_error",
    "surrogate",
    "ess_fraction",
    "pareto_k",
    "rank",
    "optimum",
    "steps",
    "stop_reason",
    "cost",
    "seconds",
}


def test_dyck_and_symmetric_targets_reach_the_optimum_on_every_seed():
    """The paper's headline at m=6, on the idealised urn: rank 1 for ten seeds of five targets."""
    targets = ["dyck", *(f"reverse-xent(sym-0.{r})" for r in (1, 2, 3, 4))]
    runs = elicit_many(
        "exact:urn", targets, length=6, seeds=range(10), method="ppt-rb-analytic(steps=1000)"
    )
    assert [run.rank for run in runs] == [1] * 50
    for run in runs:
        assert run.expected_utility == pytest.approx(run.optimum, abs=1e-9)
        assert run.cost == {"forward_tokens": 0, "backward_tokens": 0, "bank_tokens": 0}
    ess = [run.ess_fraction for run in runs if run.utility == "dyck"]
    assert min(ess) >= 0.205
    assert max(ess) < 0.235, "published: 0.21 to 0.23"


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_keeps_the_promise_of_its_record(method):
    small = {
        "exhaustive": "",
        "gcg": "",
        "coordinate": "(restarts=2)",
        "random": "(prompts=20)",
        "beam": "(width=3)",
        "simplex-pt": "(steps=5)",
        "real-pt": "(steps=5)",
        "soft-pt": "(steps=5)",
        "ppt": "(samples=300,steps=40,rollout-length=50)",
        "ppt-rb": "(samples=300,steps=40,rollout-length=50)",
        "ppt-analytic": "(samples=300,steps=40)",
        "ppt-rb-analytic": "(samples=300,steps=40)",
    }[method]
    search = not method.startswith("ppt")
    found = elicit(
        "beta-bernoulli" if search else "exact:urn", "dyck", length=5, method=method + small
    )
    record = found.to_json()
    assert set(record) >= PROMISED
    assert len(record["prompt"]) == 5
    assert record["optimum"] >= record["expected_utility"] - 1e-6
    assert 1 <= record["rank"] <= 32
    assert len(found.history) == record["steps"]
    seconds = [step.seconds for step in found.history]
    assert seconds == sorted(seconds)
    if not search:
        assert record["cost"]["forward_tokens"] == 0
        assert record["cost"]["backward_tokens"] == 0
        sampled = 0 if method.endswith("analytic") else 300 * 49
        assert record["cost"]["bank_tokens"] == sampled
        return
    assert record["cost"]["forward_tokens"] > 0
    assert record["cost"]["bank_tokens"] == 0
    assert (record["cost"]["backward_tokens"] > 0) == (method == "gcg" or method.endswith("-pt"))
    assert (record["surrogate"] is not None) == method.endswith("-pt")
    if method == "exhaustive":
        assert record["rank"] == 1
    assert found.history[-1].forward_tokens <= record["cost"]["forward_tokens"]


@pytest.mark.parametrize(
    ("model", "utility", "length", "horizon"),
    [
        ("exact:beta-bernoulli", "reverse-xent(tau-0.2)", 6, 4),
        ("exact:beta-bernoulli", "reverse-xent(dir-4)", 6, 4),
        ("exact:markov(vocab=3,order=0)", "frequency(0.4,token=2)", 5, 3),
        ("exact:markov(vocab=3,order=2,concentration=0.3)", "dyck", 6, 4),
        ("exact:markov(vocab=4,order=1)", "reverse-xent(sym-0.7)", 4, 2),
        ("exact:markov(vocab=2,order=3)", "frequency(0.5)", 8, 1),
        ("exact:coins(0.2,0.7)", "frequency(1.0)", 4, 4),
    ],
)
def test_any_vocabulary_order_length_and_horizon(model, utility, length, horizon):
    found = elicit(
        model,
        utility,
        length=length,
        horizon=horizon,
        method="ppt-rb-analytic(samples=400,steps=60)",
    )
    assert len(found.prompt) == length
    assert found.rank >= 1
    best = elicit(model, utility, length=length, horizon=horizon, method="exhaustive")
    assert best.expected_utility == pytest.approx(found.optimum, abs=1e-12)
    again = judge(model, utility, found.prompt, horizon=horizon)
    assert again.expected_utility == pytest.approx(found.expected_utility, abs=1e-12)
    assert (again.rank, again.optimum) == (found.rank, found.optimum)


def test_the_same_call_gives_the_same_answer_alone_or_in_a_batch():
    method = "ppt-analytic(samples=300,steps=50)"
    alone = elicit("exact:urn", "dyck", length=6, seed=3, method=method)
    again = elicit("exact:urn", "dyck", length=6, seed=3, method=method)
    assert alone.surrogate_history == again.surrogate_history
    batch = elicit_many(
        "exact:urn", ["frequency(0.3)", "dyck"], length=6, seeds=[1, 3], method=method
    )
    inside = next(run for run in batch if (run.utility, run.seed) == ("dyck", 3))
    assert inside.prompt == alone.prompt
    assert inside.surrogate_history == pytest.approx(alone.surrogate_history, abs=1e-9)


def test_plain_functions_are_utilities():
    found = posteer.elicit(
        "exact:beta-bernoulli",
        lambda y: sum(y),
        length=5,
        method="ppt-rb-analytic(samples=500,steps=300)",
    )
    assert found.prompt == [1] * 5
    assert found.expected_utility == pytest.approx(4 * 5.5 / 6)


def test_long_horizons_of_plain_functions_fall_back_to_rollouts():
    """2**20 continuations: PPT-RB says so, PPT goes on and the result carries its error."""
    count = lambda y: sum(y) / len(y)  # noqa: E731
    with pytest.raises(InputError, match="use --method ppt"):
        elicit("exact:beta-bernoulli", count, length=5, horizon=24)
    found = elicit(
        "exact:beta-bernoulli",
        count,
        length=5,
        horizon=24,
        method="ppt-analytic(samples=200,steps=20)",
    )
    assert found.standard_error > 0
    assert found.rank is None
    assert found.optimum is None


def test_infinities_become_null_in_json():
    found = elicit(
        "exact:coins(0.2,0.7)", "dyck", length=4, method="ppt-rb-analytic(samples=200,steps=5)"
    )
    assert found.pareto_k == -math.inf or math.isnan(found.pareto_k)
    assert found.to_json()["pareto_k"] is None


def test_published_snapping_rule_loses_the_last_context():
    """Scoring candidates with the optimum's last context cannot tell 010101 from 101010."""
    runs = elicit_many(
        "exact:urn",
        ["dyck"],
        length=6,
        seeds=range(10),
        method="ppt-rb-analytic(steps=300,candidate-score=optimum-context)",
    )
    ends = {"".join(map(str, run.prompt)) for run in runs}
    assert ends == {"010101", "101010"}


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        ("magic", "unknown method 'magic'"),
        ("ppt(samples=1)", "at least 2"),
        ("ppt-analytic(rollout-length=5)", "unknown setting"),
        ("ppt(samples=9,rollout-length=5,unvisited=magic)", "expected one of donor"),
        ("ppt(rollout-length=1)", "more than the order"),
        ("ppt-rb-analytic(candidate-score=best)", "expected one of own-context"),
        ("ppt-rb-analytic(rate=-1)", "must be positive"),
        ("exhaustive(3)", "at most 0"),
    ],
)
def test_bad_methods_are_refused(method, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit("exact:urn", "dyck", length=4, method=method)


def test_methods_know_only_their_own_settings():
    assert isinstance(open_method("ppt-rb(samples=7)"), PosteriorPrefixTuning)
    with pytest.raises(TypeError):
        PosteriorPrefixTuning(analytic=True, exact_means=True, top_k=3)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ({"length": 1}, "length 1"),
        ({"length": 4, "horizon": 0}, "horizon 0"),
        ({"length": 4, "horizon": 100_000}, "at most 10000"),
        ({"length": 10**11}, "at most 1000000"),
        ({"length": 70, "horizon": 20, "method": "exhaustive"}, "too many to try"),
    ],
)
def test_bad_problems_are_refused(call, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit("exact:urn", "dyck", **call)


def test_a_utility_that_reads_further_than_the_prompt_is_refused():
    with pytest.raises(InputError, match="reads 1 prompt tokens"):
        elicit("exact:beta-bernoulli", "reverse-xent(sym-0.2)", length=1)


def test_a_batch_has_one_model_and_utilities_of_its_vocabulary():
    from posteer.models import Metered, open_model
    from posteer.problem import Problem
    from posteer.utilities import Dyck
    from posteer.utilities.reverse_cross_entropy import reverse_cross_entropy

    models = [Metered(open_model("exact:urn")) for _ in range(2)]
    mixed = [Problem(model, Dyck(), 4, 4, 0) for model in models]
    with pytest.raises(InputError, match="share their model"):
        open_method("ppt-rb-analytic").solve(mixed)
    with pytest.raises(InputError, match="is for 2 tokens: the model has 3"):
        elicit("exact:markov(vocab=3,order=1)", reverse_cross_entropy("sym-0.2"), length=4)


def test_banks_that_would_not_fit_are_refused_before_they_are_drawn():
    with pytest.raises(InputError, match="do not fit: expected at most 3236"):
        elicit("exact:markov(vocab=12,order=3)", "dyck", length=9)


def test_exhaustive_search_tries_everything_once_for_all_seeds():
    runs = elicit_many("exact:urn", ["dyck"], length=6, seeds=range(5), method="exhaustive")
    assert len({run.cost["forward_tokens"] for run in runs}) == 1
    assert all(run.rank == 1 for run in runs)


def test_a_run_that_diverges_is_recorded_with_a_prompt():
    found = elicit(
        "exact:beta-bernoulli", "dyck", length=5, method="ppt-rb-analytic(samples=50,rate=1e308)"
    )
    assert found.stop_reason == "diverged"
    assert len(found.prompt) == 5
    assert found.to_json()["surrogate"] is None


def test_long_prompts_survive_banks_with_zero_frequencies():
    method = "ppt-rb(samples=300,steps=30,rollout-length=200)"
    found = elicit("exact:urn", "dyck", length=150, method=method)
    assert found.stop_reason == "step-limit"
    assert found.surrogate > 0


def test_rollout_banks_are_shared_by_seeds_and_analytic_ones_are_not():
    from posteer.models import Metered, open_model
    from posteer.problem import Problem
    from posteer.utilities import Dyck

    model = Metered(open_model("exact:urn"))
    problems = [Problem(model, Dyck(), 4, 4, seed) for seed in (0, 1)]
    for name, shared in (
        ("ppt(samples=20,rollout-length=9,steps=1)", True),
        ("ppt-analytic(samples=20,steps=1)", False),
    ):
        one, two = open_method(name).optimise(problems)
        assert bool((one.bank.kernels == two.bank.kernels).all()) == shared


def test_impossible_prompts_are_not_ranked_and_not_judged():
    """Two coins that always show one face: only 00..0 and 11..1 can be seen."""
    found = elicit("exact:coins(0,1)", "dyck", length=4, method="exhaustive")
    assert found.n_prompts == 2
    assert found.optimum == 0.0
    with pytest.raises(InputError, match="impossible"):
        judge("exact:coins(0,1)", "dyck", "0101")


# --- banks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["urn", "beta-bernoulli"])
def test_shipped_banks_belong_to_the_shipped_models(name):
    from posteer.latents.shipped import shipped_bank

    model = posteer.load(name)
    tuning, held_out = (shipped_bank(model.fingerprint, kind) for kind in ("tuning", "held-out"))
    assert (tuning.origin.seed, held_out.origin.seed) == (0, 1)
    for bank in (tuning, held_out):
        assert len(bank) == 5000
        assert bank.origin.rollout_length == 2000
        assert bank.origin.model == name
        assert bank.origin.tokens == 5000 * 1999
        assert bank.space == model.space
        assert int(bank.counts[0].sum()) == 2000 - model.space.order
    assert not (tuning.counts == held_out.counts).all()


def test_trained_models_are_steered_from_their_shipped_bank():
    found = elicit("urn", "dyck", length=6)
    assert found.method == "ppt-rb"
    assert found.prompt == [0, 1, 0, 1, 0, 1]
    assert found.cost == {"forward_tokens": 0, "backward_tokens": 0, "bank_tokens": 9_995_000}
    error = math.hypot(found.surrogate_standard_error, found.held_out_standard_error)
    assert abs(found.surrogate - found.held_out_surrogate) < 5 * error
    assert found.surrogate != found.held_out_surrogate


@pytest.mark.parametrize("method", ["ppt", "ppt-rb"])
@pytest.mark.parametrize("name", ["urn", "beta-bernoulli"])
def test_every_published_utility_runs_from_the_shipped_banks(name, method):
    """No token of the model is read while ascending; the full runs are in docs/records."""
    from posteer.experiments.published import TARGETS, utility_of_target
    from posteer.models import Metered
    from posteer.problem import Problem
    from posteer.utilities import open_utility

    model = Metered(posteer.load(name))
    problems = [
        Problem(model, open_utility(utility_of_target(target), model.space), 6, 4, seed=0)
        for target in TARGETS[name]
    ]
    for answer in open_method(f"{method}(steps=2)").solve(problems):
        assert answer.queries.forward_tokens == answer.queries.backward_tokens == 0
        assert answer.bank_tokens == 9_995_000
        assert answer.held_out_surrogate is not None
    assert model.queries.forward_tokens == 0


def test_the_held_out_surrogate_is_the_estimate_on_the_other_bank():
    """Against its definition: weights and means of the held-out latents under the same kernel."""
    import torch

    from posteer.kernels import final_context
    from posteer.latents.shipped import shipped_bank
    from posteer.models import Metered
    from posteer.problem import Problem
    from posteer.steering.tilt import latents_last, log_tilt
    from posteer.utilities import open_utility
    from posteer.utilities.base import utility_of_kernels

    model = Metered(posteer.load("urn"))
    utility = open_utility("frequency(0.3)", model.space)
    method = open_method("ppt-rb(steps=20)")
    (solution,) = method.optimise([Problem(model, utility, 6, 4, 0)])
    value, error = method.on_held_out(solution)
    other = shipped_bank(model.fingerprint, "held-out")
    prompt = solution.ascent.prompt
    weights = log_tilt(model.space, prompt, latents_last(other.kernels)[None], 5)[0].softmax(0)
    last = final_context(model.space, prompt.transitions, prompt.initial, 5)[0]
    means = utility_of_kernels(utility, model.space, other.kernels, 4) @ last
    assert value == pytest.approx(float(weights @ means))
    spread = (weights * (means - weights @ means)).square().sum().sqrt()
    assert error == pytest.approx(float(spread))
    assert torch.isfinite(spread)


def test_a_given_bank_is_used_and_one_of_another_model_is_not(tmp_path):
    path = tmp_path / "bank.safetensors"
    bank = posteer.sample("exact:urn", rollouts=300, length=100, out=path)
    found = elicit("exact:urn", "dyck", length=5, bank=path)
    assert found.method == "ppt-rb"
    assert found.cost["bank_tokens"] == 300 * 99
    assert found.held_out_surrogate is None
    same = elicit("exact:urn", "dyck", length=5, bank=bank, method="ppt-rb")
    assert same.surrogate_history == found.surrogate_history
    with pytest.raises(InputError, match=r"drawn from exact:urn .*not from urn"):
        elicit("urn", "dyck", length=5, bank=path)
    assert elicit("urn", "dyck", length=5, bank=path, allow_mismatch=True).prompt
    with pytest.raises(InputError, match="of 2 tokens at order 1: exact:beta-bernoulli has"):
        elicit("exact:beta-bernoulli", "dyck", length=5, bank=path, allow_mismatch=True)
    from posteer.latents.shipped import shipped_bank

    held_out = shipped_bank(posteer.load("beta-bernoulli").fingerprint, "held-out")
    own = elicit(
        "beta-bernoulli", "frequency(0.3)", length=5, bank=held_out, method="ppt-rb(steps=9)"
    )
    assert own.surrogate != own.held_out_surrogate, "the other shipped bank is held out then"
    for method in ("exhaustive", "ppt-rb-analytic"):
        with pytest.raises(InputError, match="uses no bank"):
            elicit("exact:urn", "dyck", length=5, bank=path, method=method)
    posterior = posteer.sample("exact:urn", rollouts=50, length=40, context="0110")
    with pytest.raises(InputError, match="is a posterior, drawn after 4 observed tokens"):
        elicit("exact:urn", "dyck", length=5, bank=posterior)


def test_the_default_method_fits_the_model():
    from posteer.elicitation import default_method
    from posteer.models import FunctionModel

    assert default_method(posteer.load("urn")) == "ppt-rb"
    assert default_method(posteer.open_model("exact:urn")) == "ppt-rb-analytic"
    unknown = FunctionModel(lambda tokens: None, vocab_size=2, order=0)
    assert default_method(unknown) == "ppt-rb"


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        ("ppt-rb(samples=100,rollout-length=50,steps=2)", "drawing a bank takes 4,900 model tok"),
        ("exhaustive", "trying every prompt takes"),
    ],
)
@pytest.mark.parametrize("model", ["exact:urn", "beta-bernoulli"])
def test_budgets_that_cannot_be_kept_are_refused(model, method, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit(model, "dyck", length=6, method=method, max_model_tokens=100)
    paid = elicit(model, "dyck", length=6, method=method, max_model_tokens=6000)
    assert len(paid.prompt) == 6
