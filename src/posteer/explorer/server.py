"""The server: pages, what they ask for, and runs that are told step by step as they go."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from posteer.core.errors import InputError, require
from posteer.core.spec import shown
from posteer.explorer.asked import asked_of, cell_of, fields_of, tokens_of
from posteer.explorer.guard import LOOPBACK, Guard
from posteer.explorer.menu import Menu
from posteer.explorer.runs import BusyError, Run, Runs
from posteer.explorer.steering import Hand
from posteer.views.pages.bundle import asset, served_page
from posteer.views.pages.report import write_report

MOST_CONNECTIONS = 64
"""More at once are told to come again."""
PATIENCE = 10.0
"""Seconds for a connection to ask something; then others may have its place."""
ANY_ADDRESS = {"0.0.0.0": LOOPBACK[0], "::": LOOPBACK[2]}
"""What all addresses of a machine are called, and one of them that can be opened on it."""
KINDS = {".js": "text/javascript", ".css": "text/css"}
CELL = ("model", "utility", "horizon")


class UnknownRunError(InputError):
    """No run has this id."""


class Explorer:
    """What is behind each address."""

    def __init__(self, menu: Menu, runs: Runs) -> None:
        self.menu, self.runs, self.hand = menu, runs, Hand()
        folder = files("posteer.views.pages").joinpath("assets")
        self.assets = {one.name: asset(one.name) for one in folder.iterdir() if one.is_file()}

    def app(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/assets/{name}", self.asset),
            Route("/report", self.report),
            Route("/api/menu", _told(lambda _request: self.facts())),
            Route("/api/model", _told(self.model)),
            Route("/api/runs", _told(lambda _request: self.known())),
            Route("/api/runs/{id}/messages", self.messages),
            Route("/api/runs", _posted(self.start), methods=["POST"]),
            Route("/api/runs/{id}/stop", _posted(self.stop), methods=["POST"]),
            Route("/api/steer", _posted(self.steer), methods=["POST"]),
            Route("/api/field", _posted(self.field), methods=["POST"]),
            Route("/api/tilt", _posted(self.tilt), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def page(self, _request: Request) -> Response:
        return HTMLResponse(served_page("posteer explorer", "explorer.js", "pages.css", "/assets"))

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.assets:
            return _refused(404, "no such asset")
        return Response(self.assets[name], media_type=KINDS[Path(name).suffix])

    async def report(self, _request: Request) -> Response:
        """The report of all runs that are kept: one file, with a policy of its own."""
        try:
            page = await run_in_threadpool(self._report)
        except InputError as error:
            return _refused(404, str(error))
        return HTMLResponse(page, headers={"content-security-policy": "frame-ancestors 'none'"})

    def _report(self) -> str:
        with TemporaryDirectory() as folder:
            out = Path(folder) / "report.html"
            write_report(self.runs.folder, out)
            return out.read_text(encoding="utf-8")

    def facts(self) -> dict[str, Any]:
        return {
            **self.menu.to_json(),
            "at_once": self.runs.at_once,
            "folder": str(self.runs.folder),
        }

    def model(self, request: Request) -> dict[str, Any]:
        return self.menu.open(request.query_params.get("id", "")).facts

    def known(self) -> dict[str, Any]:
        return {"runs": [run.facts() for run in self.runs.all()]}

    def start(self, _request: Request, data: Any) -> dict[str, Any]:
        return self.runs.start(asked_of(self.menu, data)).facts()

    def stop(self, request: Request, data: Any) -> dict[str, Any]:
        fields_of(data)
        run = self._run(request)
        run.stop()
        return run.facts()

    def steer(self, _request: Request, data: Any) -> dict[str, Any]:
        given = fields_of(data, *CELL, "prompt")
        cell = cell_of(self.menu, given)
        with self.runs.hand:
            return self.hand.judged(cell, tokens_of(given["prompt"]))

    def field(self, _request: Request, data: Any) -> dict[str, Any]:
        return self.hand.field(cell_of(self.menu, fields_of(data, *CELL, "length")))

    def tilt(self, _request: Request, data: Any) -> dict[str, Any]:
        given = fields_of(data, *CELL, "length", "kernel")
        with self.runs.hand:
            return self.hand.tilted(cell_of(self.menu, given), given["kernel"])

    async def messages(self, request: Request) -> Response:
        """All that a run has told and will tell, as server-sent events."""
        try:
            run = self._run(request)
        except UnknownRunError as error:
            return _refused(404, str(error))

        async def events() -> AsyncIterator[str]:
            async for message in run.follow():
                yield f"data: {message}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def _run(self, request: Request) -> Run:
        id = request.path_params["id"]
        run = self.runs.known.get(id)
        if run is None:
            raise UnknownRunError(f"run '{shown(id)}': there is none")
        return run


Endpoint = Callable[[Request], Awaitable[Response]]


def _told(read: Callable[[Request], Any]) -> Endpoint:
    """What a function says, as JSON."""

    async def endpoint(request: Request) -> Response:
        return await _answer(lambda: read(request))

    return endpoint


def _posted(act: Callable[[Request, Any], Any]) -> Endpoint:
    """What a function makes of a JSON body."""

    async def endpoint(request: Request) -> Response:
        try:
            data = json.loads(await request.body())
        except (ValueError, RecursionError):
            return _refused(400, "expected JSON, and not much of it")
        return await _answer(lambda: act(request, data))

    return endpoint


async def _answer(act: Callable[[], Any]) -> Response:
    """In a thread, so that others are heard meanwhile; what goes wrong is one line."""
    try:
        return JSONResponse(await run_in_threadpool(act))
    except BusyError as error:
        return _refused(429, str(error))
    except UnknownRunError as error:
        return _refused(404, str(error))
    except InputError as error:
        return _refused(400, str(error))
    except Exception as error:
        return _refused(500, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _refused(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)


class Hurried(H11Protocol):
    """A connection that is closed when it has asked nothing for a while, or not to the end."""

    patience = PATIENCE

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look_later()

    def _look_later(self) -> None:
        self.loop.call_later(self.patience, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        """`before` is the request that was the last one when the wait began."""
        if self.transport.is_closing():
            return
        idle = before is None or before.response_complete or before.more_body
        if self.cycle is before and idle:
            self.transport.close()
        else:
            self._look_later()


class Serving:
    """A server that is ready to run: its socket is open, its address known."""

    def __init__(
        self,
        explorer: Explorer,
        host: str = LOOPBACK[0],
        port: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        self.runs = explorer.runs
        self.socket = _listening(host, port)
        self.port = int(self.socket.getsockname()[1])
        self.open_to_others = anywhere = host not in LOOPBACK
        named = {host.lower(), socket.gethostname().lower()} if anywhere else set()
        self.guard = Guard(explorer.app(), frozenset({*LOOPBACK, *named}), self.port, anywhere)
        bound = str(self.socket.getsockname()[0])
        self.host = ANY_ADDRESS.get(bound, host)
        self.elsewhere = socket.gethostname() if bound in ANY_ADDRESS else None
        config = uvicorn.Config(
            self.guard,
            http=type("Hurried", (Hurried,), {"patience": patience}),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="off",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """The first address, with the token."""
        return self._address(self.host)

    @property
    def address_elsewhere(self) -> str | None:
        """The same by the machine's name, where all its addresses are listened on."""
        return None if self.elsewhere is None else self._address(self.elsewhere)

    def _address(self, host: str) -> str:
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/?token={self.guard.token}"

    def run(self) -> None:
        """Until it is told to stop; runs that are at work are stopped with it."""
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.runs.stop_all()

    def stop(self) -> None:
        self.server.should_exit = True


def _listening(host: str, port: int) -> socket.socket:
    require(0 <= port < 2**16, f"port {port}: expected 0 to 65535")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host '{shown(host)}' and port {port}: {error}") from error
    return opened
