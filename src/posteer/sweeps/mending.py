"""What is wrong in a store is set aside, never deleted, and named; the runs are run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from posteer.core.files import write_each
from posteer.sweeps.configuration import place_of
from posteer.sweeps.packs import pack_name, packed, salvaged
from posteer.sweeps.records import DamagedError
from posteer.sweeps.runs import RunConfig
from posteer.sweeps.store import PACKING, RunStore


def set_damaged_aside(store: RunStore) -> list[str]:
    """Look at every file; what is not whole is set aside and named."""
    told = []
    for name in [name for name, one in store.scan() if isinstance(one, DamagedError)]:
        with store.claim(name, wait=True):
            try:
                store.read(name)  # another process may have mended it since
            except FileNotFoundError:
                continue
            except DamagedError as error:
                kept = _run_aside(store, name)
                told.append(f"runs/{name}.json is damaged ({error}): moved to {kept}")
    for name, wrong in store.read_sessions()[1].items():
        told.append(f"{wrong}: moved to {store.keep_aside(store.sessions / name)}")
    return told + _packs_aside(store)


def _run_aside(store: RunStore, name: str) -> Path:
    """Keep a damaged run's file where it can be looked at."""
    loose = store.runs / f"{name}.json"
    if not loose.exists():
        write_each(store.runs, {loose.name: store.packs.read(name)})
        with store.claim(PACKING, wait=True):
            store.packs.drop([name])
    return store.keep_aside(loose)


def _packs_aside(store: RunStore) -> list[str]:
    """Packs whose index is damaged; what is whole in them is kept."""
    told: list[str] = []
    if not store.packs.damaged:
        return told
    with store.claim(PACKING, wait=True):
        store.refresh()
        for name, wrong in store.packs.damaged.items():
            whole = salvaged(store.packs.folder / name)
            kept = store.keep_aside(store.packs.folder / name)
            if whole:
                write_each(store.packs.folder, {pack_name(whole): packed(whole)})
            told.append(f"{wrong}: moved to {kept}, {len(whole)} whole runs of it are kept")
        store.refresh()
    return told


def set_outdated_aside(store: RunStore, runs: Iterable[RunConfig]) -> list[str]:
    """Set aside runs that stand where one of these does, with the same bank, and are none of them:
    of a model or a utility as it was before it changed. Tables would not know which to show."""
    own = {run.name: run for run in runs}
    strangers, found = store.names() - own.keys(), Counter[str]()
    if not strangers:
        return []
    places = {(place_of(vars(run)), run.bank) for run in own.values()}
    outdated = {
        name: record["configuration"]
        for name, record in store.scan(strangers)
        if not isinstance(record, DamagedError)
        and (place_of(record["configuration"]), record["configuration"]["bank"]) in places
    }
    for name, configuration in outdated.items():
        with store.claim(name, wait=True):
            if store.has(name):
                _run_aside(store, name)
                found[configuration["model"]] += 1
    return [
        f"{n} runs of {model} from before it, or a utility, changed are moved to "
        f"{store.quarantine}: they are run again"
        for model, n in found.items()
    ]
