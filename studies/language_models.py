"""Does posterior steering work on a language model that is no filter?

    python studies/language_models.py prepare --work DIR [--texts coin,letters]
    python studies/language_models.py run --work DIR [--texts ..] --out FILE
    python studies/language_models.py long --work DIR --texts coin --out FILE
    python studies/language_models.py precision --work DIR --texts coin --out FILE
    python studies/language_models.py [show] [--records FILE] [--figures DIR]

SmolLM2-135M-Instruct over a few of its tokens after a text (`pip install 'posteer[llm]'`).
`prepare` asks the network for its laws after all histories of up to 13 tokens (fewer of larger
alphabets), once, and keeps them in DIR. `run` takes a bank and every answer from these laws, which
are the network's own, metered as it would be, and ranks each prompt among all; it goes on with a
FILE that it has begun, as `long` does. `long` asks the
network itself about prompts of 30 tokens, and lets other methods spend 1, 3 and 10 times as much
(and the default one, too). `precision` asks the network in bfloat16 about all prompts of 6 tokens.
`show` prints the tables of docs/LANGUAGE_MODELS.md from the records and, asked for, draws its
figures. A bank serves all utilities and lengths of its text; tokens of a run are those that
verifying asks of the model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import torch
from correlations import correlation
from journals import Journal
from language_settings import HORIZON, SETTINGS, UTILITIES
from language_tables import figures_of, show
from places import RECORDS
from running import Options, read_records, run
from safetensors.torch import load_file, save_file
from torch import Tensor

import posteer
from posteer.banks import LatentBank, sample
from posteer.banks.checks.departure import check_departure
from posteer.banks.reading import correction_of
from posteer.banks.tuning import Fit, latents_by
from posteer.core.errors import require
from posteer.core.shapes import Float, Int
from posteer.evaluation import estimate_from_bank
from posteer.families.markov.family import MarkovFamily
from posteer.goals.objectives import objective_of
from posteer.goals.utilities import open_goal
from posteer.methods.corrected import CorrectedValues
from posteer.models.continuations import shared_laws
from posteer.models.protocol import Can, Model
from posteer.models.wrapped.smollm2 import from_text as open_smollm2
from posteer.tokens.contexts import ContextSpace, all_sequences

ROLLOUTS = 256
"""Of a bank, each as long as the laws that are kept."""

TOKENS = 400
"""That a run may ask of the model."""

LONG, LONG_UTILITIES, LONG_ROLLOUTS = 30, ("reverse-xent(sym-0.2)", "dyck"), 192
RIVALS, TIMES = ("coordinate", "beam", "gcg"), (1, 3, 10)
"""What is asked at a length where prompts cannot all be tried."""


class Unmarked:
    """A tokenizer that puts nothing before a text."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(self.inner.encode(text, add_special_tokens=False))

    def decode(self, tokens: list[int]) -> str:
        return str(self.inner.decode(tokens))


@dataclass(frozen=True, eq=False)
class Place:
    """Where histories of one length are in the table of their level."""

    levels: list[Tensor]
    rows: Int[Tensor, "B"]
    length: int

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        return self.levels[self.length][self.rows]

    def select(self, rows: Int[Tensor, "K"]) -> Place:
        return Place(self.levels, self.rows[rows], self.length)


class Kept(Model):
    """A network's own laws, read once and looked up since."""

    probed = False

    def __init__(self, name: str, levels: list[Tensor], shares: list[float]) -> None:
        self.name, self.levels, self.shares = f"smollm2 ({name})", levels, shares
        self.vocab_size = levels[0].shape[1]
        self.family = MarkovFamily(ContextSpace(self.vocab_size, 1))
        self.max_length = len(levels) - 1

    def batch_invariant(self, n_tokens: int) -> bool:
        return True

    def start(self, batch: int, capacity: int = 16) -> Place:
        return Place(self.levels, torch.zeros(batch, dtype=torch.long), 0)

    def advance(self, state: Place, tokens: Int[Tensor, "B"]) -> tuple[Tensor, Place]:
        after = Place(self.levels, state.rows * self.vocab_size + tokens, state.length + 1)
        return after.log_probs, after


def network(name: str, precision: str = "float32") -> Model:
    """The language model itself, behind a text."""
    opened: Any = open_smollm2(f"smollm2({precision})")
    return posteer.wrap(
        opened.network,
        tokenizer=Unmarked(opened.tokenizer),
        alphabet=list(SETTINGS[name].alphabet),
        text=SETTINGS[name].text,
        name=f"smollm2 ({name})",
    )


def prepare(name: str, work: Path) -> None:
    """The network's laws after all histories, unless they are there."""
    path, setting = work / f"{name}.safetensors", SETTINGS[name]
    if path.exists():
        return
    model = network(name)
    vocab = setting.vocab_size
    first = model.log_predictive(all_sequences(vocab, 1)).double()
    levels = [first[:1, 0], first[:, 1]]
    while len(levels) < setting.depth:
        length = len(levels)
        horizon = min(HORIZON, setting.depth - length)
        groups = all_sequences(vocab, length).split(64)
        laws = torch.cat([shared_laws(model, some, horizon) for some in groups])
        for depth in range(horizon):
            shape = (len(laws) * vocab**depth, vocab, -1)
            levels.append(laws.view(shape).logsumexp(-1).log_softmax(-1))
        print(f"{name}: histories of up to {len(levels) - 1} tokens", flush=True)
    tensors = {f"level{at}": level.contiguous() for at, level in enumerate(levels)}
    if Can.SHARES in model.can:
        some = torch.randint(vocab, (64, setting.depth - 1), generator=torch.Generator())
        tensors["shares"] = model.alphabet_share(some).double().mean(0)
    save_file(tensors, path)


def kept(name: str, work: Path) -> Kept:
    path = work / f"{name}.safetensors"
    require(path.exists(), f"{path}: prepare it first")
    held = load_file(path)
    levels = [held[f"level{at}"] for at in range(SETTINGS[name].depth)]
    return Kept(name, levels, held["shares"].tolist() if "shares" in held else [])


def bank_of(name: str, work: Path, model: Kept) -> LatentBank:
    """Drawn once, and kept."""
    out = work / f"{name}.bank.safetensors"
    return sample(model, rollouts=ROLLOUTS, length=len(model.levels), tuned=True, out=out)


def all_values(model: Kept, length: int, utility: str) -> Float[Tensor, "K"]:
    """J of every prompt, straight from the laws."""
    vocab = model.vocab_size
    laws = torch.zeros(vocab**length, 1, dtype=torch.float64)
    for step in range(HORIZON):
        own = model.levels[length + step].view(len(laws), -1, vocab)
        laws = (laws[..., None] + own).flatten(1)
    goal = open_goal(utility, model)
    last = ContextSpace(vocab, goal.order).suffix(all_sequences(vocab, length))
    return objective_of(goal, vocab, HORIZON).of_laws(laws, last)


def rank_of(value: float, values: Float[Tensor, "K"]) -> int:
    return int((values > value + 1e-5 * float(values.max() - values.min())).sum()) + 1


def cell(name: str, model: Kept, bank: LatentBank, length: int, utility: str) -> dict[str, Any]:
    """One run by the default method, and what other ways to spend its tokens would have found."""
    vocab = model.vocab_size
    prompts, values = all_sequences(vocab, length), all_values(model, length, utility)
    price = length + sum(vocab**depth for depth in range(1, HORIZON))
    most = TOKENS // price
    found = posteer.elicit(
        model, utility, length=length, bank=bank, verify=most, max_model_tokens=TOKENS, rank=False
    )
    assert found.answer.verified is not None and found.expected_utility is not None
    by_bank = estimate_from_bank(bank, utility, prompts, HORIZON)
    correction = correction_of(bank, length, HORIZON)
    assert correction is not None
    goal = open_goal(utility, model)
    objective = objective_of(goal, vocab, HORIZON)
    corrected = CorrectedValues(
        correction, objective, HORIZON, ContextSpace(vocab, goal.order).suffix
    ).values(prompts)
    first = by_bank.argsort(descending=True, stable=True)
    random = torch.randperm(len(values), generator=torch.Generator().manual_seed(length))
    verified = found.answer.verified
    return {
        "kind": "cell",
        "text": name,
        "length": length,
        "utility": utility,
        "prompts": len(prompts),
        "rank": rank_of(found.expected_utility, values),
        "J": found.expected_utility,
        "best_J": float(values.max()),
        "spread": float(values.std()),
        "next_J": float(values.topk(2).values[1]),
        "tokens": verified.tokens,
        "asked": verified.compared,
        "rounds": verified.rounds,
        "settled": verified.settled,
        "bank_tokens": bank.tokens,
        "rank_of_banks_first": rank_of(float(values[first[0]]), values),
        "rank_of_banks_first_8": rank_of(float(values[first[:8]].max()), values),
        "rank_at_equal_questions": rank_of(float(values[first[:most]].max()), values),
        "rank_of_corrected_first": rank_of(float(values[corrected.argmax()]), values),
        "rank_of_random": rank_of(float(values[random[:most]].max()), values),
        "correlation_of_bank": correlation(by_bank, values),
        "correlation_of_corrected": correlation(corrected, values),
    }


def of_text(name: str, work: Path, journal: Journal) -> None:
    """All records of a text."""
    model = kept(name, work)
    bank = bank_of(name, work, model)
    journal.add(("text", name), lambda: described(name, model, bank))
    lengths = SETTINGS[name].lengths
    for length, utility in product(lengths, SETTINGS[name].utilities):
        make = partial(cell, name, model, bank, length, utility)
        journal.add(("cell", name, length, utility), make)
    scattered = (lengths[-1], UTILITIES[0])
    journal.add(("scatter", name, *scattered), lambda: scatter(name, model, bank, *scattered))


def described(name: str, model: Kept, bank: LatentBank) -> dict[str, Any]:
    """What the bank of a text is, and how far the model is from a filter over it."""
    departure = check_departure(model, bank)
    assert departure is not None
    assert bank.sequences is not None
    shown = Fit(order=1, length=bank.sequences.shape[1], smoothing=0.5)
    kernels = latents_by(shown, bank.sequences, model.vocab_size).kernels
    return {
        "kind": "text",
        "text": name,
        "words": SETTINGS[name].text,
        "alphabet": list(SETTINGS[name].alphabet),
        "shares": model.shares,
        "tokens": bank.tokens,
        "order": bank.space.order,
        "temper": bank.temper,
        "smoothing": bank.smoothing,
        "departure": asdict(departure),
        "foretold": departure.rank_correlation.value,
        "kernels": kernels[:, :, -1].tolist(),
    }


def scatter(name: str, model: Kept, bank: LatentBank, length: int, utility: str) -> dict[str, Any]:
    """Surrogates beside J of every prompt, for a figure."""
    prompts, values = all_sequences(model.vocab_size, length), all_values(model, length, utility)
    correction = correction_of(bank, length, HORIZON)
    assert correction is not None
    goal = open_goal(utility, model)
    objective = objective_of(goal, model.vocab_size, HORIZON)
    suffix = ContextSpace(model.vocab_size, goal.order).suffix
    corrected = CorrectedValues(correction, objective, HORIZON, suffix).values(prompts)
    by_bank = estimate_from_bank(bank, utility, prompts, HORIZON)
    return {
        "kind": "scatter",
        "text": name,
        "length": length,
        "utility": utility,
        "J": [round(x, 5) for x in values.tolist()],
        "bank": [round(x, 5) for x in by_bank.tolist()],
        "corrected": [round(x, 5) for x in corrected.tolist()],
    }


def of_long_prompts(name: str, work: Path, journal: Journal, utilities: list[str]) -> None:
    """The default method at its tokens and others at more."""
    model = network(name)
    out = work / f"{name}.long.safetensors"
    bank = sample(model, rollouts=LONG_ROLLOUTS, length=41, tuned=True, out=out)
    print(f"{name}: bank of {bank.tokens:,} model tokens", flush=True)
    runs: list[tuple[str, int, dict[str, Any]]]
    runs = [("auto", TOKENS * n, {"bank": bank, "verify": TOKENS}) for n in TIMES]
    runs += [(rival, TOKENS * n, {"method": rival}) for n in TIMES for rival in RIVALS]
    for utility, (method, budget, more) in product(utilities, runs):
        make = partial(long_run, name, model, utility, method, budget, more)
        journal.add(("long", name, LONG, utility, method, budget), make)


def in_half(name: str, work: Path) -> dict[str, Any]:
    """J of all short prompts in bfloat16 beside single precision, and the time a token takes."""
    setting, length = SETTINGS[name], SETTINGS[name].lengths[0]
    prompts = all_sequences(setting.vocab_size, length)
    seconds, laws = {}, torch.zeros(0)
    for precision in ("float32", "bfloat16"):
        model = network(name, precision)
        shared_laws(model, prompts[:4], HORIZON)  # warms up
        started = process_time()
        laws = shared_laws(model, prompts, HORIZON)
        seconds[precision] = process_time() - started
    same, apart = 0, 0.0
    for utility in setting.utilities:
        values = all_values(kept(name, work), length, utility)
        goal = open_goal(utility, model)
        last = ContextSpace(setting.vocab_size, goal.order).suffix(prompts)
        half = objective_of(goal, setting.vocab_size, HORIZON).of_laws(laws, last)
        same += rank_of(float(values[half.argmax()]), values) == 1
        apart = max(apart, float((half - values).abs().max() / values.std()))
    return {
        "kind": "precision",
        "text": name,
        "same": same,
        "utilities": len(setting.utilities),
        "apart": apart,
        "seconds": seconds,
    }


def long_run(
    name: str, model: Model, utility: str, method: str, budget: int, more: dict[str, Any]
) -> dict[str, Any]:
    """One method at one budget."""
    found = posteer.elicit(model, utility, length=LONG, rank=False, max_model_tokens=budget, **more)
    return {
        "kind": "long",
        "text": name,
        "length": LONG,
        "utility": utility,
        "method": method,
        "budget": budget,
        "J": found.expected_utility,
        "prompt": found.to_json()["prompt_text"],
        "tokens": found.cost["forward_tokens"] + found.cost["backward_tokens"],
        "bank_tokens": more["bank"].tokens if "bank" in more else 0,
    }


def main(arguments: list[str] | None = None) -> None:
    options = Options(__doc__)
    options.add_argument(
        "do", nargs="?", default="show", choices=("prepare", "run", "long", "precision", "show")
    )
    options.add_argument("--work", type=Path)
    options.add_argument("--texts", default=",".join(SETTINGS))
    options.add_argument("--utilities", default=";".join(LONG_UTILITIES), help="of long prompts")
    options.add_argument("--out", type=Path)
    options.add_argument("--records", type=Path, default=RECORDS / "language-models.jsonl")
    options.add_argument("--figures", type=Path)
    given = options.parse_args(arguments)
    names = given.texts.split(",")
    for name in names:
        require(name in SETTINGS, f"text '{name}': expected some of {', '.join(SETTINGS)}")
    if given.do == "show":
        records = read_records(given.records)
        show(records)
        if given.figures is not None:
            figures_of(records, given.figures)
        return
    require(given.work is not None, "expected --work DIR")
    given.work.mkdir(parents=True, exist_ok=True)
    for name in names:
        if given.do == "prepare":
            prepare(name, given.work)
            continue
        require(given.out is not None, "expected --out FILE")
        if given.do == "precision":
            Journal(given.out).add(("precision", name), partial(in_half, name, given.work))
        elif given.do == "long":
            of_long_prompts(name, given.work, Journal(given.out), given.utilities.split(";"))
        else:
            of_text(name, given.work, Journal(given.out))


if __name__ == "__main__":
    run(main)
