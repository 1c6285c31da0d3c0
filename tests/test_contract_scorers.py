"""What every estimator of hard prompts promises: J within its error, by the same latents."""

import pytest
import torch
from posing import posed
from strangers import doubtful

from posteer.banks import draw_analytic
from posteer.core.errors import InputError
from posteer.evaluation import expected_utility
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.scorers import SCORERS
from posteer.methods.scorers.choice import Estimators, PosteriorScorer
from posteer.methods.scorers.posterior import FoldedPrompts, HardPromptPosterior
from posteer.methods.scorers.protocol import BankScorer, HardScorer, HardScores
from posteer.models import ExactModel
from posteer.tokens.contexts import all_sequences, count_transitions

PRIOR = open_process("urn")
DYCK = open_utility("dyck", PRIOR.space)
PROMPTS = all_sequences(2, 5)[3::4]
NAMES = ("importance", "psis", "conjugate", "smc", "doubtful")


@pytest.fixture(scope="module")
def estimators():
    return Estimators(draw_analytic(PRIOR, 2000, 0))


def made(estimators, name):
    return doubtful(estimators) if name == "doubtful" else estimators.named(name)


def folded(prompts):
    counts = count_transitions(PRIOR.space, prompts)
    return FoldedPrompts(PRIOR.space, counts, PRIOR.space.suffix(prompts))


def test_every_registered_estimator_is_here():
    assert set(SCORERS.names()) == set(NAMES) - {"doubtful"}


@pytest.mark.parametrize("name", NAMES)
def test_j_lies_within_five_standard_errors_of_plain_weights(estimators, name):
    """Eight prompts each: at five errors a false alarm is below 1e-5 for normal errors. The fit's
    own error is a bootstrap of 16 replicates and may be half of what it should."""
    posterior = made(estimators, name)
    assert isinstance(posterior, HardPromptPosterior) and posterior.name == name
    scores = posterior.of_folded(DYCK, folded(PROMPTS), 4)
    exact = expected_utility(ExactModel(PRIOR), DYCK, PROMPTS, 4).expected_utility
    plain = estimators.named("importance").of_folded(DYCK, folded(PROMPTS), 4).standard_error
    assert bool(((scores.value - exact).abs() <= 5 * plain).all())
    assert bool((scores.standard_error > 0).all()) and bool((scores.standard_error < 0.05).all())


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_has_its_score_alone_or_among_others(estimators, name):
    posterior = made(estimators, name)
    together = posterior.of_folded(DYCK, folded(PROMPTS), 4)
    for row in (0, 3):
        alone = posterior.of_folded(DYCK, folded(PROMPTS[[row]]), 4)
        assert float(alone.value[0]) == pytest.approx(float(together.value[row]), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_what_searches_with_it_finds_near_values(estimators, name):
    posterior = made(estimators, name)
    quick = posterior.for_search()
    values = quick.of_folded(DYCK, folded(PROMPTS), 4).value
    careful = posterior.of_folded(DYCK, folded(PROMPTS), 4)
    plain = estimators.named("importance").of_folded(DYCK, folded(PROMPTS), 4).standard_error
    assert bool(((values - careful.value).abs() <= 5 * plain).all())
    assert posterior.certifies == (quick.name == posterior.name)


@pytest.mark.parametrize("name", NAMES)
def test_searches_ask_it_by_classes(estimators, name):
    scorer = PosteriorScorer(estimators, made(estimators, name), DYCK, 4, PRIOR.space)
    assert isinstance(scorer, HardScorer)
    counts, last = count_transitions(PRIOR.space, PROMPTS).long(), PRIOR.space.suffix(PROMPTS)
    scores = scorer(counts, PROMPTS[:, 0], last)
    assert torch.equal(scores.select(torch.tensor([2, 0])).value, scores.value[[2, 0]])


def test_prompts_are_taken_to_where_the_search_runs(estimators, monkeypatch):
    """And to the CPU for those that do not follow, as others' may not."""
    asked, brought = [], []

    class Listening(HardPromptPosterior):
        follows = True

        def of_folded(self, utility, prompts, horizon):
            asked.append((prompts.counts.device.type, prompts.last.device.type))
            return HardScores.of(torch.zeros(len(prompts.last)), torch.zeros(len(prompts.last)))

    scorer = PosteriorScorer(estimators, Listening(), DYCK, 4, PRIOR.space, "meta")
    monkeypatch.setattr(HardScores, "cpu", lambda scores: brought.append(scores) or scores)
    counts, last = count_transitions(PRIOR.space, PROMPTS).long(), PRIOR.space.suffix(PROMPTS)
    scorer(counts, last, last)
    assert asked == [("meta", "meta")] and len(brought) == 1
    monkeypatch.setattr(Listening, "follows", False)
    scorer(counts, last, last)
    assert asked[1:] == [("cpu", "cpu")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_scores(estimators, name):
    counts, last = count_transitions(PRIOR.space, PROMPTS).long(), PRIOR.space.suffix(PROMPTS)
    given = (estimators, made(estimators, name), DYCK, 4, PRIOR.space)
    here, there = (PosteriorScorer(*given, kind)(counts, last, last) for kind in ("cpu", "cuda"))
    assert torch.allclose(here.value, there.value, rtol=1e-7)
    assert torch.allclose(here.standard_error, there.standard_error, rtol=1e-4)


def test_a_bank_alone_is_a_scorer_too():
    problem = posed(ExactModel(PRIOR), DYCK, 5)
    scorer = BankScorer.of(draw_analytic(PRIOR, 300, 0), problem)
    assert isinstance(scorer, HardScorer)


def test_an_unknown_one_is_refused(estimators):
    with pytest.raises(InputError, match="unknown estimator 'smcc': did you mean smc"):
        estimators.named("smcc")
