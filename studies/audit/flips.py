"""One wrong bit in every kind of file we write and read: refused by name, mended, or no matter."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as plain

from audit import work
from audit.tally import Tally
from posteer.banks import load_bank
from posteer.core.errors import InputError
from posteer.core.files import sha256
from posteer.core.sealing import read_sealed_lines, write_sums
from posteer.models.transformer.checkpoint import load_model, read_manifest
from posteer.sweeps.results import read_facts, read_histories, read_sweep
from posteer.sweeps.runner import Report
from posteer.sweeps.store import RunStore
from posteer.training.folder import TrainingFolder


@dataclass(frozen=True)
class Kind:
    """A kind of file: one of it, how it is read, and what begins the words it is refused by.

    `read` gives what the file says, as something that can be compared; `told` collects what was
    said on the way. One that `mends` says the same even where the file was refused.
    """

    name: str
    path: Path
    read: Callable[[list[str]], Any]
    named: str
    mends: bool = False


def make(scratch: Path) -> list[Kind]:
    """One of every kind, from a sweep, a draw and a training in a folder."""
    return [*of_sweeps_and_draws(scratch), *of_trainings(scratch)]


def of_sweeps_and_draws(scratch: Path) -> list[Kind]:
    """What they write."""
    work.sweep(scratch / "sweep")
    work.draw(scratch / "draw")
    work.sweep_that_draws(scratch / "drawing")
    return [
        *_of_a_sweep(scratch / "sweep", scratch),
        *_of_a_sweep_that_draws(scratch / "drawing"),
        *_of_a_draw(scratch / "draw"),
    ]


def of_trainings(scratch: Path) -> list[Kind]:
    """What they write."""
    work.train(scratch / "train")
    return _of_a_training(scratch / "train")


def _of_a_sweep(folder: Path, scratch: Path) -> list[Kind]:
    store = RunStore.open(folder)
    name = sorted(store.names())[0]
    parquet, journal = folder / "results.parquet", store.commits / f"{'a' * 64}.json"
    session = sorted(store.sessions.iterdir())[0]
    texts = {f"{n}.json": (store.runs / f"{n}.json").read_text() for n in sorted(store.names())[:2]}
    listed = scratch / "listed"
    listed.mkdir()
    plain.write_table(plain.read_table(parquet), listed / "old.parquet")
    write_sums(listed / "SHA256SUMS", {"old.parquet": sha256(listed / "old.parquet")})

    def of_file(path: Path) -> Callable[[list[str]], Any]:
        def read(_told: list[str]) -> Any:
            found = read_sweep(path)
            return found.rows, found.total, read_facts(path)

        return read

    def of_journal(told: list[str]) -> Any:
        """Its runs are not there yet; what it brings is what they are."""
        for one in texts:
            (store.runs / one).unlink(missing_ok=True)
        told += store.recover()
        brought = {n: p.read_text() for n in texts if (p := store.runs / n).exists()}
        for one, text in texts.items():
            (store.runs / one).write_text(text)
        shutil.rmtree(store.quarantine, ignore_errors=True)
        return brought

    journal.write_text(json.dumps(texts))
    return [
        Kind("run", store.runs / f"{name}.json", of_file(folder), name),
        Kind("journal of a batch", journal, of_journal, str(journal)),
        Kind("sweep.json", folder / "sweep.json", of_file(folder), str(folder / "sweep.json")),
        Kind("session", session, of_file(folder), str(session)),
        Kind("results.parquet", parquet, of_file(parquet), str(parquet)),
        Kind(
            "results.histories.parquet",
            parquet.with_suffix(".histories.parquet"),
            lambda _told: read_histories(parquet),
            str(parquet.with_suffix(".histories.parquet")),
        ),
        Kind(
            "file listed in SHA256SUMS",
            listed / "old.parquet",
            of_file(listed / "old.parquet"),
            str(listed / "old.parquet"),
        ),
        Kind("SHA256SUMS", listed / "SHA256SUMS", of_file(listed / "old.parquet"), str(listed)),
    ]


def _of_a_sweep_that_draws(folder: Path) -> list[Kind]:
    """A damaged bank is drawn again, in the sizes that are kept; these are found out again."""
    store = RunStore.open(folder)
    bank, sizes = work.kept_by_sweep(folder)

    def of_bank(told: list[str]) -> Any:
        store.forget(list(store.names()))
        work.sweep_that_draws(folder, Report(warn=told.append))
        shutil.rmtree(store.quarantine, ignore_errors=True)
        return work.digest_of_sweep_that_draws(folder)

    def of_sizes(told: list[str]) -> Any:
        """They are read where the bank is gone."""
        bank.unlink()
        return of_bank(told)

    return [
        Kind("bank of a sweep", bank, of_bank, str(bank), mends=True),
        Kind("sizes of a sweep's bank", sizes, of_sizes, str(sizes), mends=True),
    ]


def _of_a_draw(folder: Path) -> list[Kind]:
    bank = folder / work.BANK
    again = folder / "again"
    parts = again / f"{work.BANK}.parts"

    def of_bank(_told: list[str]) -> Any:
        found = load_bank(bank)
        tensors = {**found.latents.tensors(), "counts": found.counts}
        shown = {name: None if t is None else t.tolist() for name, t in tensors.items()}
        snapshots = {at: counts.tolist() for at, counts in found.snapshots.items()}
        return shown, snapshots, asdict(found.origin), found.unvisited

    def of_part(_told: list[str]) -> Any:
        """A damaged part is drawn again: the bank is the same."""
        work.draw(again)
        digest = work.digest_of_draw(again)
        for path in again.iterdir():
            path.unlink()
        parts.mkdir()
        return digest

    parts.mkdir(parents=True)
    part = parts / "000000000-000000008.safetensors"
    part.write_bytes(_one_part(folder))
    return [Kind("bank", bank, of_bank, str(bank)), Kind("part of a draw", part, of_part, "")]


def _one_part(folder: Path) -> bytes:
    """The first part of the draw, as an interrupted one leaves it."""
    scratch = folder / "interrupted"

    def stop(_what: str, done: int, _all: int) -> None:
        if done > work.CHUNK * work.DRAWN_LENGTH:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        work.draw(scratch, stop)
    (part,) = (scratch / f"{work.BANK}.parts").glob("*.safetensors")
    return part.read_bytes()


def _of_a_training(run: Path) -> list[Kind]:
    model, folder = run / "model", TrainingFolder(run, work.PLAN)
    newest = folder.saved()[-1]

    def of_model(_told: list[str]) -> Any:
        found = load_model(model)
        weights = {k: v.tolist() for k, v in found.network.state_dict().items()}
        return weights, read_manifest(model)

    def of_checkpoint(told: list[str]) -> Any:
        found = folder.newest(told.append)
        assert found is not None
        return found[0], found[1], {k: v.tolist() for k, v in found[2].items()}

    def of_plan(_told: list[str]) -> Any:
        folder.accept()
        return None

    checkpoint = [
        Kind(f"checkpoint's {name}", newest / name, of_checkpoint, str(newest))
        for name in ("manifest.json", "state.safetensors")
    ]
    models = [
        Kind(f"model's {name}", model / name, of_model, str(model))
        for name in ("manifest.json", "config.json", "model.safetensors")
    ]
    records = run / "records.jsonl"
    return [
        *checkpoint,
        *models,
        Kind("plan.json", run / "plan.json", of_plan, str(run)),
        Kind("records.jsonl", records, lambda _told: read_sealed_lines(records), str(records)),
    ]


def flip_often(kind: Kind, flips: int, seed: int = 0) -> Tally:
    """Flip single bits of a file, one at a time, and read it."""
    tally, chance = Tally(f"flipped bits: {kind.name}"), random.Random(f"{kind.name} {seed}")
    whole = kind.path.read_bytes()
    truth = kind.read([])
    for _ in range(flips):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        data = bytearray(whole)
        data[at] ^= 1 << bit
        kind.path.write_bytes(bytes(data))
        tally.tries += 1
        told: list[str] = []
        try:
            found = kind.read(told)
        except InputError as error:
            told, found = [str(error)], None
        except Exception as error:
            tally.fault("tracebacks", f"byte {at} bit {bit}: {type(error).__name__}: {error}")
            continue
        same = found == truth
        if any(kind.named in text for text in told) and (same or not kind.mends):
            tally.refused += 1
        elif not told and same:
            tally.harmless += 1
        else:
            tally.fault("silent", f"byte {at} bit {bit}: {told}")
    kind.path.write_bytes(whole)
    return tally
