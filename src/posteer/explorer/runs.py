"""Runs of the page: each a thread that searches and tells what it sees, kept in a store.

At most so many work at once; one more is refused. A run that is stopped leaves nothing in the
store, one that fails leaves its error there, as in any sweep.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError
from posteer.core.sealing import write_sealed
from posteer.explorer.asked import Asked
from posteer.explorer.frames import Frames, Message
from posteer.explorer.menu import Menu
from posteer.methods.needs import require_needs
from posteer.methods.protocol import pose
from posteer.methods.registry import open_method
from posteer.methods.watching import Seen, watching
from posteer.models import Model
from posteer.models.protocol import Can
from posteer.paper.published import HORIZON, published, target_of_utility
from posteer.sweeps.configuration import Grid, SweepConfig
from posteer.sweeps.provenance import Session
from posteer.sweeps.records import Record
from posteer.sweeps.runner import Report, solve_one
from posteer.sweeps.runs import Batch, RunConfig, name_of, one_run
from posteer.sweeps.store import RunStore


def beside(model: Model) -> tuple[str, str]:
    """What a run is compared with: a search on the model itself, the usual one where it gives
    gradients, and the paper's method, on latents of the prior where that is known."""
    direct = "gcg" if Can.ONE_HOTS in model.can else "coordinate"
    return direct, "ppt-rb-analytic" if Can.EXACT in model.can else "ppt-rb"


AT_ONCE = 2
MOST_REMEMBERED = 100
"""Runs whose steps the server still knows; all that finished are in the store."""
BATCH_SIZE = 1
LAST_SECONDS = 5.0
"""For runs to end in, once the server does."""


class BusyError(InputError):
    """As many runs are at work as may be."""


class StoppedError(KeyboardInterrupt):
    """Somebody asked a run to stop. Searches and draws take it as Ctrl-C, and tidy up."""


class Run:
    """One run: what was asked, and all messages so far, for any number of listeners."""

    def __init__(self, asked: Asked) -> None:
        self.id = secrets.token_hex(8)
        self.asked = asked
        self.state = "running"
        self.ended = threading.Event()
        self._messages: list[str] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def send(self, message: Message) -> None:
        """A message for all who listen, now or later."""
        with self._lock:
            self._messages.append(json.dumps(message, allow_nan=False))
            self._wake()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def require_wanted(self) -> None:
        """End the work if somebody asked for that."""
        if self.stopping:
            raise StoppedError("stopped")

    def end(self, state: str, **more: Any) -> None:
        """The last message."""
        self.state = state
        self.send({"type": "end", "state": state, **more})
        self.ended.set()
        with self._lock:
            self._wake()

    async def follow(self) -> AsyncIterator[str]:
        """All messages, from the first; it waits for the next until the run has ended."""
        news = asyncio.Event()
        listener = (asyncio.get_running_loop(), news)
        with self._lock:
            self._listeners.add(listener)
        at = 0
        try:
            while True:
                news.clear()
                over = self.ended.is_set()
                with self._lock:
                    some, at = self._messages[at:], len(self._messages)
                for message in some:
                    yield message
                if over:
                    return
                await news.wait()
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def _wake(self) -> None:
        for loop, news in self._listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

    def facts(self) -> dict[str, Any]:
        cell = self.asked.cell
        return {
            "id": self.id,
            "state": self.state,
            "model": cell.model.pick.id,
            "name": cell.model.pick.name,
            "utility": cell.utility,
            "length": cell.length,
            "horizon": cell.horizon,
            "method": self.asked.method,
            "seed": self.asked.seed,
        }


class Runs:
    """All runs of a server, and the store that they are kept in."""

    def __init__(self, menu: Menu, folder: Path, at_once: int = AT_ONCE) -> None:
        self.menu, self.folder, self.at_once = menu, folder, at_once
        self.known: dict[str, Run] = {}
        self.hand = threading.Lock()
        """Held while a prompt is judged by hand: runs wait for it, so that it is quick."""
        self._session = Session(menu.device, BATCH_SIZE)
        self._lock = threading.Lock()

    def start(self, asked: Asked) -> Run:
        """A new run, if there is room for one."""
        with self._lock:
            working = sum(run.state == "running" for run in self.known.values())
            if working >= self.at_once:
                raise BusyError(
                    f"{working} runs are at work, and {self.at_once} may be: stop one, or wait"
                )
            run = Run(asked)
            self.known[run.id] = run
            for old in [one for one in self.known.values() if one.state != "running"]:
                if len(self.known) > MOST_REMEMBERED:
                    del self.known[old.id]
        threading.Thread(target=self._work, args=(run,), daemon=True).start()
        return run

    def stop_all(self) -> None:
        """All of them, and wait a little: a search that is torn down with its process complains."""
        for run in self.all():
            run.stop()
        for run in self.all():
            run.ended.wait(LAST_SECONDS)

    def all(self) -> list[Run]:
        """Those that are known now."""
        with self._lock:
            return list(self.known.values())

    def store(self) -> RunStore:
        return RunStore(self.folder)

    def _work(self, run: Run) -> None:
        frames = Frames(run.send)

        def progress(what: str, done: int, most: int) -> None:
            self._let(run)
            frames.progress(what, done, most)

        def see(seen: Seen) -> None:
            self._let(run)
            frames.see(seen)

        try:
            with watching(see):
                record = self._solved(run, run.asked.method, progress)
            frames.finish_ascent()
            run.send({"type": "result", **told(record), "published": _published(run.asked)})
            for method in beside(run.asked.cell.model.model) if run.asked.beside else ():
                if method != run.asked.method:
                    other = self._compared(run, method, progress)
                    run.send({"type": "beside", "method": method, **other})
            run.end("failed" if record["status"] == "failed" else "done", error=record["error"])
        except KeyboardInterrupt:
            run.end("stopped")
        except InputError as error:
            run.end("failed", error=str(error))
        except BaseException as error:  # whatever it is, it is this run's alone
            run.end("failed", error=f"{type(error).__name__}: {' '.join(str(error).split())}")

    def _let(self, run: Run) -> None:
        """Ends what is not wanted, and lets the hand go first."""
        run.require_wanted()
        with self.hand:
            pass

    def _compared(self, run: Run, method: str, progress: Any) -> Message:
        try:
            return told(self._solved(run, method, progress))
        except InputError as error:  # it cannot do this: that is worth saying, and no more
            return {"status": "failed", "error": str(error), "expected_utility": None}

    def _solved(self, run: Run, method: str, progress: Any) -> Record:
        """The record of a run by a method: solved and kept; one that is only compared with is taken
        from the store where it is there."""
        asked, cell = run.asked, run.asked.cell
        own, files = one_run(
            cell.model.pick.name,
            cell.model.model,
            utility=cell.utility,
            length=cell.length,
            horizon=cell.horizon,
            method=method,
            seed=asked.seed,
        )
        problem = pose([own.request(cell.model.model, None, self.menu.device)])[0]
        require_needs(open_method(method).needs, problem, method)  # before latents are drawn
        store = self._store_for(None)
        if method != asked.method and store.has(own.name):
            return store.read(own.name)
        report = Report(within=progress)
        record = solve_one(store, own, cell.model.model, files, self.menu.device, report)
        run.require_wanted()  # a search that was interrupted answers with what it has
        self._keep(own, record)
        return record

    def _store_for(self, own: RunConfig | None) -> RunStore:
        """The store, described as holding this run too."""
        store = RunStore(self.folder)
        if own is None:
            for part in (store.runs, store.commits, store.sessions):
                part.mkdir(parents=True, exist_ok=True)
            return store
        grid = Grid(
            models=(own.model,),
            utilities=(own.utility,),
            methods=(own.method,),
            lengths=(own.length,),
            horizons=(own.horizon,),
            seeds=(own.seed,),
        )
        config = SweepConfig(name="explorer", grids=(grid,))
        return RunStore.create(self.folder, config, BATCH_SIZE, extend=True)

    def _keep(self, own: RunConfig, record: Record) -> None:
        store = self._store_for(own)
        if record["status"] == "failed":  # what was found before is kept
            store.commit(Batch((own,)).key, [record])
        else:
            store.put(record)
        with self._lock:
            self._session.add(1, record["seconds"])
            write_sealed(store.sessions / f"{self._session.name}.json", self._session.to_json())


def told(record: Record) -> Message:
    """What a page is told of a record."""
    result = record["result"] or {}
    names = (
        *("prompt", "expected_utility", "standard_error", "rank", "optimum", "best_prompt"),
        *("bound", "surrogate", "held_out_surrogate", "ess_fraction", "pareto_k", "steps"),
        *("stop_reason", "prompt_kernel", "seconds", "cost", "warnings", "choice"),
    )
    return {
        "run": name_of(record["configuration"]),
        "status": record["status"],
        "error": record["error"],
        **{name: result.get(name) for name in names},
    }


def _published(asked: Asked) -> list[dict[str, Any]]:
    """J that the paper gives for this cell, by method."""
    cell = asked.cell
    at = (cell.model.pick.name, target_of_utility(cell.utility), cell.length)
    found = {key[3]: one for key, one in published().items() if (*key[:3], key[4]) == (*at, "J")}
    return [
        {"method": method, "value": one.value, "error": one.standard_error}
        for method, one in found.items()
        if cell.horizon == HORIZON
    ]
