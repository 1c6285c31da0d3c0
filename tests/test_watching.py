"""What searches show to a watcher: the very steps, weights and candidates that they answer with."""

import pytest
import torch

from posteer import elicit, elicit_many
from posteer.methods.watching import Ascending, Candidates, Weighed, watching


def seen_of(**asked):
    seen = []
    with watching(seen.append):
        found = elicit("exact:urn", "dyck", **asked)
    return seen, found


def test_an_ascent_shows_its_latents_its_steps_and_what_it_snaps_to():
    method = "ppt-rb-analytic(samples=50,steps=40)"
    seen, found = seen_of(length=6, method=method)
    kinds = [type(one) for one in seen]
    assert kinds == [Weighed, *[Ascending] * found.answer.steps, Candidates]
    steps = seen[1:-1]
    assert [one.step for one in steps] == list(range(1, len(steps) + 1))
    assert [one.surrogate for one in steps] == found.answer.surrogate_history
    for one, ess in zip(steps, found.answer.ess_history, strict=True):
        weights = one.log_weights.softmax(0)
        assert 1 / (50 * float(weights.square().sum())) == pytest.approx(one.ess_fraction)
        assert one.ess_fraction == ess
    last, snapped = steps[-1], seen[-1]
    assert torch.equal(last.transitions, found.answer.prompt_kernel)
    assert snapped.snapped and snapped.prompts[0].tolist() == found.prompt
    assert float(snapped.values[0]) == found.answer.snapped_surrogate
    assert seen[0].kernels.shape == (50, 2, 2)


def test_a_step_weighs_latents_by_the_prompts_of_its_kernel():
    """At two tokens from uniform starts: W is the mean over prompts of how likely a latent makes
    them, here summed one by one."""
    seen, _ = seen_of(length=2, method="ppt-rb-analytic(samples=20,steps=1)")
    kernels, step = seen[0].kernels, seen[1]
    for one, two in ((0, 1), (3, 7)):
        rows = [step.transitions[c] * kernels[latent, c] for latent in (one, two) for c in (0, 1)]
        sums = torch.stack([row.sum() for row in rows]).reshape(2, 2)
        ratio = float((step.log_weights[one] - step.log_weights[two]).exp())
        ends = sorted(float(sums[0, c] / sums[1, c]) for c in (0, 1))
        assert ends[0] - 1e-9 <= ratio <= ends[1] + 1e-9, "whatever the starts, it is between"


@pytest.mark.parametrize(
    "method", ["classes-analytic(samples=50,estimator=importance)", "climb-analytic",
               "classes-analytic(samples=50,estimator=importance,limit=0)",
               "climb-analytic(limit=0)", "coordinate", "beam"]
)  # fmt: skip
def test_a_search_shows_its_candidates_best_first(method):
    proven = {"nodes": 10} if method.startswith("classes") else {}
    seen, found = seen_of(length=6, method=method, **proven)
    shown = [one for one in seen if isinstance(one, Candidates)]
    assert len(shown) > 0
    for one in shown:
        assert one.values.tolist() == sorted(one.values.tolist(), reverse=True)
        assert one.prompts.shape == (len(one.values), 6)
    tried = [one.tried for one in shown if not one.snapped]
    assert tried == sorted(tried)
    assert shown[-1].prompts[0].tolist() == found.prompt


def test_what_a_watcher_raises_ends_the_search():
    class Enough(Exception):
        pass

    def see(one):
        if isinstance(one, Ascending) and one.step == 3:
            raise Enough

    with pytest.raises(Enough), watching(see):
        elicit("exact:urn", "dyck", length=6, method="ppt-rb-analytic(samples=20)")


def test_a_batch_is_not_watched_and_watching_ends():
    seen = []
    asked = {"length": 6, "method": "ppt-rb-analytic(samples=20,steps=3)"}
    with watching(seen.append):
        elicit_many("exact:urn", ["dyck"], seeds=range(2), **asked)
    elicit("exact:urn", "dyck", **asked)
    assert seen == []
