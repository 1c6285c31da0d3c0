"""How far models are from filters: near for one that is, far for one that is not, and in words."""

import json

import pytest
import torch

from posteer.banks import sample
from posteer.banks.checks.departure import check_departure
from posteer.cli import main
from posteer.models import FunctionModel
from posteer.views.sentences import departure_lines


def two_coins(tokens):
    """The exact filter of a coin of 0.15 or 0.85."""
    ones = tokens.double().sum(1)
    zeros = tokens.shape[1] - ones
    chances = torch.tensor([0.15, 0.85], dtype=torch.float64)
    log_weights = ones[:, None] * chances.log() + zeros[:, None] * (1 - chances).log()
    one = (log_weights.softmax(-1) * chances).sum(-1)
    return torch.stack([1 - one, one], 1)


def restless(tokens):
    """Goes on as it went until twenty tokens are read, and then does the opposite."""
    ones = (tokens[:, -8:].double().sum(1) + 0.5) / (min(8, tokens.shape[1]) + 1)
    one = ones if tokens.shape[1] < 20 else 1 - ones
    return torch.stack([1 - one, one], 1)


@pytest.fixture(scope="module")
def found():
    models = {
        predict: FunctionModel(predict, vocab_size=2, order=0, name=predict.__name__)
        for predict in (two_coins, restless)
    }
    return {
        predict: (model, check_departure(model, sample(model, rollouts=128, length=40, tuned=True)))
        for predict, model in models.items()
    }


def test_a_filter_is_near_the_mixture_over_its_latents(found):
    """What a mixture that never learns is off by is known: the entropy of a fair coin less that of
    the filter's law, once it knows the coin."""
    _, near = found[two_coins]
    assert near.mixture.value < 0.02 and near.explained > 0.9
    assert near.rank_correlation.value > found[restless][1].rank_correlation.value
    known = 0.693 + 0.15 * torch.tensor(0.15).log() + 0.85 * torch.tensor(0.85).log()
    assert near.unweighed.value == pytest.approx(float(known), abs=0.05)
    assert near.fixed.value > near.unweighed.value - 0.02
    assert near.drift.low < near.drift_of_filter.high
    assert near.entropy.value == pytest.approx(0.423, abs=0.05)


def test_a_model_that_drifts_is_far_from_it(found):
    _, far = found[restless]
    assert far.mixture.value > 0.05 and far.drift.low > far.drift_of_filter.high
    assert far.on_prompts.value > 0.02
    shown = " ".join(departure_lines(far))
    assert "posterior mixture" in shown and "verify" in shown


def test_a_bank_without_laws_says_nothing():
    model = FunctionModel(two_coins, vocab_size=2, order=0)
    assert check_departure(model, sample(model, rollouts=40, length=32, tuned=False)) is None


MODEL = """
import torch
from posteer.models import FunctionModel

def predict(tokens):
    ones = (tokens[:, -4:].double().sum(1) + 0.5) / (min(4, tokens.shape[1]) + 1)
    return torch.stack([1 - ones, ones], 1)

model = FunctionModel(predict, vocab_size=2, order=1, max_length=64)
"""


def test_posteer_check(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(MODEL)
    asked = ["check", "--model", f"{tmp_path / 'mine.py'}:model", "--rollouts", "80"]
    asked += ["--length", "32", "--effort", "0.1", "--no-families"]
    main([*asked, "--json", "--figure", str(tmp_path / "check.svg")])
    record = json.loads(capsys.readouterr().out)
    departure = record["check"]["departure"]
    assert departure["mixture"]["low"] <= departure["mixture"]["value"]
    assert record["check"]["rank_correlation"]["value"] > 0.4
    assert record["rollouts"] == 80 and (tmp_path / "check.svg").exists()


def test_posteer_check_refuses_sizes_of_a_given_bank(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["check", "--model", "urn", "--bank", str(tmp_path / "x"), "--rollouts", "9"])
    assert "--bank has its own size" in capsys.readouterr().err
