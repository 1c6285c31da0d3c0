"""Banks of any family: what latents are asked to be, kept in files, checked against rollouts."""

import json

import pytest
import torch
from scipy import stats

from posteer.banks import DrawPlan, draw_bank, load_bank, sample
from posteer.banks.checks.atoms import check_atoms, frequencies_p_value
from posteer.banks.checks.families import check_families, compared
from posteer.banks.checks.report import CheckSettings, check_filter
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.atoms.classified import classified_by
from posteer.families.protocol import Family, Fittable, Latents
from posteer.families.registry import BELIEFS, open_family, open_process
from posteer.goals.utilities import open_utility
from posteer.models import Metered, open_model
from posteer.tokens.contexts import ContextSpace, all_sequences

TWO = "mess3(x=[0.05,0.3],a=[0.9,0.9],weights=[0.3,0.7])"
STICKY = "exact:sticky(states=2,vocab=2,stay=0.9,sharp=0.9)"
ASKED = {
    "markov": ("markov(order=2)", "markov"),
    "hmm": ("hmm(states=2)", "hmm"),
    "atoms": ("atoms", "atoms"),
}


def test_every_family_that_can_be_asked_for_is_here():
    assert set(BELIEFS.names()) == set(ASKED)


@pytest.mark.parametrize(("asked", "name"), ASKED.values())
def test_a_bank_of_a_family_comes_back_as_it_was(asked, name, tmp_path):
    out = tmp_path / "bank.safetensors"
    given = {"rollouts": 24, "length": 60, "family": asked, "context": "01"}
    bank = sample(f"exact:{TWO}", out=out, **given)
    again = load_bank(out)
    family = bank.latents.family
    assert isinstance(family, Family) and isinstance(family, Fittable)
    assert isinstance(again.latents, Latents) and family.name == name
    assert again.latents.family == family and again.origin == bank.origin
    for key, tensor in bank.latents.tensors().items():
        assert torch.equal(again.latents.tensors()[key], tensor)
    assert torch.equal(again.counts, bank.counts)
    assert sample(f"exact:{TWO}", out=out, **given).reused
    with pytest.raises(InputError, match="holds another draw"):
        sample(f"exact:{TWO}", out=out, **given | {"family": "markov(order=0)"})
    assert len(again.first(10)) == 10
    prompts = all_sequences(3, 3)
    utility = open_utility("frequency(0.3)", ContextSpace(3, 0))
    assert bool((bank.latents.log_likelihood(prompts) <= 0).all())
    means = bank.latents.mean_utility(utility, prompts, 2)
    assert means.shape == (27, 24) and bool(means.isfinite().all())


@pytest.mark.parametrize("asked", ["hmm(states=2)", "atoms"])
def test_an_interrupted_draw_of_whole_rollouts_goes_on(asked, tmp_path):
    model, out = Metered(open_model(STICKY)), tmp_path / "bank.safetensors"
    plan = DrawPlan(n_samples=200, rollout_length=20, family=asked)

    def stop(_what, done, _total):
        if done > 128 * 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw_bank(model, plan, out, chunk=64, progress=stop)
    other = DrawPlan(n_samples=200, rollout_length=20, family="markov(order=1)")
    with pytest.raises(InputError, match="unfinished draw with other settings"):
        draw_bank(model, other, out)
    bank = draw_bank(model, plan, out)
    assert torch.equal(bank.counts, draw_bank(model, plan).counts)
    assert bank.counts.dtype == torch.int8 and bank.rollouts is bank.counts


def test_a_damaged_bank_of_machines_is_refused(tmp_path):
    out = tmp_path / "bank.safetensors"
    bank = sample(STICKY, rollouts=16, length=30, out=out)
    data = bytearray(out.read_bytes())
    for size in (7, 500, -9):
        out.write_bytes(data[:size])
        with pytest.raises(InputError, match="cut short"):
            load_bank(out)
    data[-3] ^= 1
    out.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        load_bank(out)
    tensors = bank.latents.tensors()
    family = bank.latents.family
    with pytest.raises(InputError, match="not a distribution"):
        family.latents_of(tensors | {"operators": tensors["operators"] * 2})
    with pytest.raises(InputError, match="holds tokens past 1"):
        family.latents_of(tensors | {"counts": torch.full((16, 3), 2)})
    with pytest.raises(InputError, match="one for each latent"):
        family.latents_of(tensors | {"counts": torch.zeros(3, 3, dtype=torch.int8)})


def test_latents_after_a_context_are_where_it_left_them():
    """Atoms after a context weigh prompts as the posterior does, exactly."""
    prior = open_process(TWO)
    bank = sample(f"exact:{TWO}", rollouts=30, length=40, family="atoms", context="0120")
    prompts = all_sequences(3, 3)
    known = prior.after((0, 1, 2, 0)).latents.log_likelihood(prompts)
    found = bank.latents.log_likelihood(prompts)
    assert torch.allclose(found, known[:, bank.latents.classes], rtol=1e-12)
    machines = sample(STICKY, rollouts=16, length=60, context="1111").latents
    fresh = sample(STICKY, rollouts=16, length=60).latents
    goes_on = machines.log_likelihood(torch.tensor([[1]])).exp().mean()
    assert float(goes_on) > float(fresh.log_likelihood(torch.tensor([[1]])).exp().mean()) + 0.1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("hmm(states=0)", "states 0: expected at least 1"),
        ("hmm(states=2.5)", "not a whole number"),
        ("hmm(states=2,most=3)", "exclude each other"),
        ("markov(order=-1)", "order -1: expected at least 0"),
        ("atoms", "expected a prior of finitely many latents"),
        ("magic", "unknown family of latents"),
        ("", "expected such as hmm"),
        (3, "expected such as hmm"),
    ],
)
def test_families_that_cannot_be_asked_for(asked, words):
    with pytest.raises(InputError, match=words):
        sample("exact:urn", rollouts=10, length=20, family=asked)


def test_what_a_model_says_anyway_is_not_asked():
    assert sample("exact:urn", rollouts=10, length=20, family="markov(order=1)").origin.family == ""
    with pytest.raises(InputError, match="unvisited 'predictive'"):
        sample(STICKY, rollouts=10, length=20, unvisited="predictive")


def rolled(text, n, length, seed=0):
    latents = open_process(text).sample(n, numpy_stream(seed, "asked"))
    return latents.roll_out(length, torch_stream(seed, "asked"))


def test_atoms_are_told_as_bayes_tells_them():
    prior = open_process("coins(0.2,0.7,weights=[0.25,0.75])")
    tokens = rolled("coins(0.2,0.7,weights=[0.25,0.75])", 200, 30)
    family = classified_by(prior, "test")
    ones = tokens.sum(1).double()
    odds = 0.75 * 0.7**ones * 0.3 ** (30 - ones)
    other = 0.25 * 0.2**ones * 0.8 ** (30 - ones)
    weight = odds / (odds + other)
    assert torch.allclose(family.posterior(tokens)[:, 1], weight, atol=1e-10)
    found = check_atoms(family, tokens)
    largest = torch.maximum(weight, 1 - weight)
    assert found.sharpness == pytest.approx(float(largest.mean()))
    assert found.sure == pytest.approx(float((largest > 0.99).double().mean()))
    entropy = float(torch.special.entr(torch.stack([weight, 1 - weight])).sum(0).mean())
    assert found.entropy == pytest.approx(entropy)
    assert found.p_value > 1e-4
    assert check_atoms(family, rolled("coins(0.2,0.7)", 200, 30)).p_value < 1e-6


def test_atoms_that_are_told_badly_keep_their_frequencies():
    """Of 4,000 rollouts of 6 tokens the likeliest atom would hardly ever be the middle one; five
    standard errors of a frequency are at most 0.04."""
    family = classified_by(open_process("coins(0.4,0.5,0.6)"), "test")
    tokens = rolled("coins(0.4,0.5,0.6)", 4000, 6)
    found = family.fit_after((), tokens, "donor", numpy_stream(0, "told"))
    shares = found.classes.bincount(minlength=3) / 4000
    assert bool((shares - 1 / 3).abs().max() < 0.04)
    assert family.posterior(tokens).argmax(1).bincount(minlength=3)[1] < 4000 * 0.32


def test_false_alarms_of_atoms_are_no_more_than_stated():
    """200 banks of 100 rollouts that are told badly: 10 of them below 5 % expected at most, more
    than 22 with a chance below 1e-3."""
    family = classified_by(open_process("coins(0.4,0.5,0.6)"), "test")
    tokens = rolled("coins(0.4,0.5,0.6)", 20_000, 10).view(200, 100, 10)
    assert sum(check_atoms(family, one).p_value < 0.05 for one in tokens) <= 22


def test_the_chi_square_is_scipys_and_rare_atoms_share_a_bin():
    seen, expected = torch.tensor([30.0, 50.0, 20.0]), torch.tensor([40.0, 40.0, 20.0])
    ours = frequencies_p_value(seen.double(), expected.double())
    merged = stats.chisquare([30, 50, 20], [40, 40, 20]).pvalue
    assert ours == pytest.approx(merged, rel=1e-6)
    seen, expected = torch.tensor([30.0, 68.0, 2.0, 0.0]), torch.tensor([40.0, 54.0, 3.0, 3.0])
    merged = stats.chisquare([2, 30, 68], [6, 40, 54]).pvalue
    assert frequencies_p_value(seen.double(), expected.double()) == pytest.approx(merged, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("markov(vocab=2,order=1)", {"markov(order=1)"}),
        pytest.param(TWO, {"atoms"}, marks=pytest.mark.slow),
        pytest.param("mess3(x=0.05,a=0.85)", {"atoms"}, marks=pytest.mark.slow),
    ],
)
def test_the_family_that_made_rollouts_explains_them_best(text, best):
    """48 rollouts judge: tokens without memory are behind by more than two standard errors."""
    prior = open_process(text)
    found = check_families(rolled(text, 96, 64), prior.family.vocab_size, prior, 3, 0)
    assert found.best.family in best
    ranked = {one.family: one for one in found.tried}
    assert not ranked["markov(order=0)"].as_good
    if "atoms" in best:
        assert ranked["hmm(states=3)"].behind < ranked["markov(order=3)"].behind
        assert ranked["hmm(states=3)"].behind < 0.02
    assert [one.log_likelihood for one in found.tried] == sorted(
        (one.log_likelihood for one in found.tried), reverse=True
    )


def test_differences_are_paired():
    """By hand: per token, over rollouts; what is impossible for one is told, not averaged."""
    one = torch.tensor([-10.0, -20.0, -30.0, -40.0]).double()
    two = one - torch.tensor([1.0, 2.0, 1.0, 2.0]).double()
    never = torch.full((4,), -torch.inf).double()
    found = compared({"b": (2, two), "a": (1, one), "c": (1, never)}, 10)
    assert [each.family for each in found.tried] == ["a", "b"] and found.impossible == ["c"]
    assert found.tried[1].behind == pytest.approx(0.15)
    assert found.tried[1].behind_error == pytest.approx(0.1 * 0.5773502691896258 / 2)
    assert not found.rivals


def test_the_command_says_which_family_explains_rollouts(capsys, tmp_path):
    words = ["sample", "--model", f"exact:{TWO}", "--rollouts", "40", "--length", "40"]
    words += ["--family", "atoms", "--check", "--effort", "0.13"]
    main([*words, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["family"] == "atoms"
    check = record["check"]
    assert check["families"]["tried"][0]["behind"] == 0.0
    assert check["atoms"]["atoms"] == 2 and set(check["p_values"]) == {"atoms"}
    assert check["martingale"] is None and "atoms latents" in check["verdict"]


def test_the_view_says_it_in_one_line(capsys):
    from posteer.views.terminal.banks import families_text

    one = torch.tensor([-10.0, -20.0, -30.0, -40.0]).double()
    found = compared({"hmm(states=3)": (4, one), "markov(order=1)": (1, one - 1.0)}, 10)
    assert families_text(found) == (
        "rollouts are explained best by hmm(states=3) x 4: -2.5000 nats a token; "
        "markov(order=1) is 0.1000 ± 0.0000 behind"
    )
    rival = compared({"a": (1, one), "b": (1, one - torch.tensor([1.0, -1.1, 1.0, 1.0]))}, 10)
    assert families_text(rival).endswith("as well, to two standard errors, by b")


def test_a_bank_of_machines_is_checked_and_shown(capsys):
    from posteer.views.terminal.banks import show_bank, show_report

    bank = sample(STICKY, rollouts=40, length=40)
    settings = CheckSettings(effort=0.1, families=False)
    report = check_filter(STICKY, bank, settings)
    assert report.p_values == {} and report.verdict.startswith("no check can tell")
    show_bank(bank, None)
    show_report(report)
    assert "hidden Markov models of 2 states" in capsys.readouterr().out


def test_a_network_trained_on_machines_says_so():
    from networks import small

    from posteer.models.transformer.model import TransformerModel

    prior = open_process("sticky(states=3,vocab=2)")
    network = small("none", vocab=2).network
    assert TransformerModel(network, "net", prior).family == open_family("hmm(states=3)", 2)
