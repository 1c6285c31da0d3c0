"""Banks that were drawn for one call serve the next, while the model is what it was."""

import pytest
import torch

from posteer import elicit
from posteer.banks import sample
from posteer.banks.kept import MOST_KEPT
from posteer.methods.answers import Because
from posteer.models import FunctionModel

ASKED = {"length": 14, "rank": False}
SMALL = {"length": 40, "seconds": 0.01}


class Coin(FunctionModel):
    """Short, so that drawing it takes a moment; how it leans is not in its fingerprint."""

    def __init__(self, lean=0.6):
        super().__init__(self.predict, vocab_size=2, order=0, name="coin", max_length=80)
        self.lean, self.asked = lean, 0

    def predict(self, tokens):
        self.asked += len(tokens)
        ones = tokens.sum(1).double() + 2 * self.lean
        after = ones / (tokens.shape[1] + 2)
        return torch.stack([1 - after, after], 1)

    fingerprint = "a coin, however it leans"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTEER_CACHE", str(tmp_path))
    return tmp_path / "banks"


def drawn_by(model, **more):
    found = elicit(model, "frequency(1)", **ASKED, **more)
    return found, found.choice.reasons[0].because


def test_a_bank_serves_later_calls(cache):
    first, why = drawn_by(Coin())
    assert why is Because.ROLLED_OUT and first.cost["drawn_tokens"] > 10_000
    assert len(list(cache.iterdir())) == 1
    second, why = drawn_by(Coin())
    assert why is Because.BANK_KEPT and second.bank.reused
    assert second.cost["drawn_tokens"] == 8 * 7, "it was asked whether it is the same"
    assert second.prompt == first.prompt and second.surrogate == first.surrogate
    assert second.choice.reasons[0].figures == {"tokens": first.bank.tokens}
    assert second.choice.method == first.choice.method, "with the sizes that draw it again"
    within, why = drawn_by(Coin(), max_model_tokens=200)
    assert why is Because.BANK_KEPT and within.cost["drawn_tokens"] <= 200


def test_a_bank_of_a_model_that_has_changed_or_is_damaged_is_drawn_anew(cache):
    first, other = sample(Coin(), **SMALL), sample(Coin(lean=0.9), **SMALL)
    assert not other.reused and not torch.equal(other.counts, first.counts)
    assert sample(Coin(lean=0.9), **SMALL).reused, "and takes its place"
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-50])
    assert not sample(Coin(lean=0.9), **SMALL).reused


def test_nothing_is_kept_where_that_is_said_or_cannot_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTEER_CACHE", "off")
    sample(Coin(), **SMALL)
    assert not sample(Coin(), **SMALL).reused and list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("POSTEER_CACHE", str(tmp_path / "file"))
    assert not sample(Coin(), **SMALL).reused


def test_other_draws_have_other_files_and_the_oldest_go(cache):
    cache.mkdir(parents=True)
    for at in range(MOST_KEPT):
        (cache / f"old{at}.safetensors").write_bytes(b"")
    assert not sample(Coin(), **SMALL).reused and sample(Coin(), **SMALL).reused
    assert not sample(Coin(), **SMALL, seed=1).reused
    assert not sample(Coin(), **SMALL, context="01").reused
    assert not sample(Coin(), **SMALL | {"seconds": 0.02}).reused
    assert len(list(cache.iterdir())) == MOST_KEPT
