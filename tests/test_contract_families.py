"""What every prior and every set of latents promises, against definitions."""

import itertools

import pytest
import torch
from strangers import CyclePrior

from posteer.core.randomness import numpy_stream
from posteer.core.weights import weighted_mean
from posteer.families.protocol import Belief, CountedPrior, Family, Latents, Prior
from posteer.families.registry import PRIORS, open_process
from posteer.goals.utilities import open_utility
from posteer.tokens.contexts import ContextSpace, all_sequences

EXAMPLES = {
    "beta-bernoulli": "beta-bernoulli",
    "urn": "urn",
    "markov": "markov(vocab=3,order=1,concentration=[[0.3,1,2],[0.5,0.5,0.7],[4,1,1]])",
    "coins": "coins(0.2,0.7,weights=[0.3,0.7])",
    "mixture": "mixture([[0.9,0.1],[0.2,0.8]],[[0.3,0.7],[0.6,0.4]])",
    "atoms": "atoms(mess3(x=[0.1,0.3],a=0.7),mixture([0.2,0.3,0.5]),weights=[0.3,0.7])",
    "hmm": "hmm([[[0.5,0],[0,0.5]],[[0.1,0.2],[0.3,0.4]]],starts=[[0.2,0.8]])",
    "mess3": "mess3(x=0.15,a=0.6)",
    "rrxor": "rrxor",
    "sticky": "sticky(states=3,vocab=2,stay=0.8,sharp=0.9)",
    "context-tree": "context-tree(vocab=3,depth=2,split=0.4,concentration=0.7)",
    "random-hmm": "random-hmm(states=2,vocab=3,n=4,concentration=0.5,seed=3)",
    "ginc": "ginc(vocab=3,concepts=2,entities=2,properties=4,temperature=1,seed=32)",
    "chains": "chains(n=3,vocab=3,order=1,seed=2)",
    "draws": "draws(markov(vocab=3,order=1,concentration=0.7),n=5,seed=1)",
    "dirichlet-mixture": "dirichlet-mixture([[[1,2],[3,1]],[[5,1],[1,1]]],weights=[0.4,0.6])",
}
OF_SEVERAL_ORDERS = "mixture([0.3,0.7],[[0.2,0.8],[0.5,0.5]],weights=[0.4,0.6])"
PRIORS_HERE = [
    *(open_process(text) for text in (*EXAMPLES.values(), OF_SEVERAL_ORDERS)),
    CyclePrior(0.3),
]
every_prior = pytest.mark.parametrize("prior", PRIORS_HERE, ids=lambda prior: prior.spec[:30])


def test_every_registered_prior_is_here():
    assert set(PRIORS.names()) == set(EXAMPLES)


@every_prior
def test_they_are_what_the_protocols_say(prior):
    latents = prior.sample(3, numpy_stream(0, "contract"))
    assert isinstance(prior, Prior) and isinstance(latents, Latents)
    assert isinstance(prior.family, Family) and isinstance(prior.start(2), Belief)
    assert len(latents) == 3 and latents.family == prior.family


@pytest.mark.parametrize("prior", PRIORS_HERE[:-1], ids=lambda prior: prior.spec[:30])
def test_the_text_of_a_prior_makes_it_again(prior):
    again = open_process(prior.spec)
    prompts = all_sequences(prior.family.vocab_size, 4)
    assert torch.allclose(again.evidence(prompts), prior.evidence(prompts), rtol=1e-12)


def chained(prior, prompts, skip):
    """log p of a prompt by its own predictions, from token `skip` on."""
    belief, total = prior.start(len(prompts)), torch.zeros(len(prompts)).double()
    for place, tokens in enumerate(prompts.unbind(1)):
        law = belief.log_probs
        assert torch.allclose(law.exp().sum(-1), torch.ones(len(prompts)).double())
        if place >= skip:
            total = total + law.gather(1, tokens[:, None])[:, 0]
        belief = prior.observe(belief, tokens)
    return total


@every_prior
def test_predictions_chain_to_the_evidence(prior):
    """The first `order` tokens say nothing of a latent and are not in the evidence."""
    prompts = all_sequences(prior.family.vocab_size, 5)
    found = chained(prior, prompts, prior.family.order)
    assert torch.allclose(found, prior.evidence(prompts), rtol=1e-10)


@every_prior
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_posterior_goes_on_where_its_data_end(prior, n):
    """Splitting a context off: p(context) p(rest | context) is p(whole)."""
    vocab, order = prior.family.vocab_size, prior.family.order
    whole = all_sequences(vocab, 5)
    context = tuple((i * 7 + 1) % vocab for i in range(n))
    rows = (whole[:, :n] == torch.tensor(context)).all(1)
    after = prior.after(context)
    found = chained(after, whole[rows][:, n:], max(order - n, 0))
    known = chained(prior, torch.tensor([context]), order)
    assert torch.allclose(known + found, prior.evidence(whole[rows]), rtol=1e-10)
    assert torch.allclose(
        after.evidence(whole[rows][:, n:]), prior.evidence(whole[rows]) - known, rtol=1e-10
    )
    again = after.after((0, 1))
    longer = prior.after((*context, 0, 1))
    assert torch.allclose(again.start(1).log_probs, longer.start(1).log_probs, rtol=1e-10)


@every_prior
def test_states_fork(prior):
    prompts = all_sequences(prior.family.vocab_size, 3)
    belief = prior.start(len(prompts))
    for tokens in prompts.unbind(1):
        belief = prior.observe(belief, tokens)
    rows = torch.tensor([3, 0, 3])
    assert torch.allclose(belief.select(rows).log_probs, belief.log_probs[rows])


@every_prior
def test_likelihoods_are_laws_of_what_comes_next(prior):
    """Over the next token a latent's likelihoods add up to that of what came before."""
    vocab, order = prior.family.vocab_size, prior.family.order
    latents = prior.sample(6, numpy_stream(1, "contract"))
    prompts = all_sequences(vocab, order + 1)
    longer = [torch.cat([prompts, torch.full((len(prompts), 1), v)], 1) for v in range(vocab)]
    total = torch.stack([latents.log_likelihood(one) for one in longer]).logsumexp(0)
    assert torch.allclose(total, latents.log_likelihood(prompts), rtol=1e-10, atol=1e-12)


@every_prior
@pytest.mark.parametrize("text", ["frequency(0.3)", "dyck"])
def test_mean_utilities_are_means_over_continuations(prior, text):
    """mu_l(y) = sum over continuations of p_l(y + continuation) / p_l(y) times the utility."""
    vocab, order = prior.family.vocab_size, prior.family.order
    latents = prior.sample(4, numpy_stream(2, "contract"))
    utility = open_utility(text, ContextSpace(vocab, 0))
    prompts = all_sequences(vocab, order + 2)
    found = latents.mean_utility(utility, prompts, 3)
    expected = torch.zeros_like(found)
    for continuation in itertools.product(range(vocab), repeat=3):
        tail = torch.tensor(continuation).expand(len(prompts), -1)
        logs = latents.log_likelihood(torch.cat([prompts, tail], 1))
        value = utility(tail, torch.zeros(len(prompts), dtype=torch.long))
        expected += (logs - latents.log_likelihood(prompts)).exp() * value[:, None]
    possible = latents.log_likelihood(prompts) > -torch.inf
    assert torch.allclose(found[possible], expected[possible], atol=1e-10)


@every_prior
def test_rollouts_go_on_from_a_head(prior):
    latents = prior.sample(5, numpy_stream(3, "contract"))
    one, two = (torch.Generator().manual_seed(0) for _ in range(2))
    tokens = latents.roll_out(6, one, (0, 1))
    assert tokens.shape == (5, 6)
    assert int(tokens.min()) >= 0 and int(tokens.max()) < prior.family.vocab_size
    assert torch.equal(tokens, latents.roll_out(6, two, (0, 1))), "the same stream, the same tokens"


@every_prior
def test_many_latents_weighed_by_a_prompt_predict_as_exact_bayes_does(prior):
    """Five standard errors of 20,000 draws: a false alarm in 2e-6 of comparisons, of which 20."""
    vocab, order = prior.family.vocab_size, prior.family.order
    latents = prior.sample(20_000, numpy_stream(4, "contract"))
    prompts = all_sequences(vocab, order + 3)[::5][:4]
    belief = prior.start(len(prompts))
    for tokens in prompts.unbind(1):
        belief = prior.observe(belief, tokens)
    log_weights = latents.log_likelihood(prompts)
    for token in range(vocab):
        longer = torch.cat([prompts, torch.full((len(prompts), 1), token)], 1)
        chance = (latents.log_likelihood(longer) - log_weights).exp()
        mean = weighted_mean(log_weights, chance)
        off = (mean.value - belief.log_probs[:, token].exp()).abs()
        assert bool((off <= 5 * mean.standard_error + 1e-12).all())


@pytest.mark.parametrize("prior", [p for p in PRIORS_HERE if isinstance(p, CountedPrior)])
@pytest.mark.parametrize("length", [3, 5])
def test_classes_hold_every_prompt_and_believe_alike(prior, length):
    vocab = prior.family.vocab_size
    classes = prior.classes_of_prompts(length, 1, None)
    assert sum(classes.sizes) == vocab**length
    rows = torch.arange(len(classes))
    prompts = torch.stack([classes.prompt(row) for row in rows.tolist()])
    belief = prior.start(len(prompts))
    for tokens in prompts.unbind(1):
        belief = prior.observe(belief, tokens)
    assert torch.allclose(classes.beliefs(rows).log_probs, belief.log_probs, rtol=1e-12)
    assert torch.equal(classes.contexts(rows, 1), prompts[:, -1])
