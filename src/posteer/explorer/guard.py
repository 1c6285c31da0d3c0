"""Who may ask: one who has the token of the first address, or the cookie that it was changed for.

A name that is not ours as Host (another site's name that was made to point here), a foreign
Origin, a request without the cookie and a body that is too large are refused before anything is
looked at. Every answer says what a browser may do with it.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 2**16
PLAIN_PORT = "80"
"""What a browser means where it says no port."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


WELCOME = (
    '<!doctype html><html lang="en"><meta http-equiv="refresh" content="0; url=/">'
    '<link rel="icon" href="data:,"><title>posteer explorer</title></html>'
)


class Guard:
    """An application behind a token. `hosts` are the names that it answers to; with `anywhere` any
    address in numbers is one, since only a name can be made to point here."""

    def __init__(self, app: App, hosts: frozenset[str], port: int, anywhere: bool = False) -> None:
        self.app, self.hosts, self.port, self.anywhere = app, hosts, port, anywhere
        self.token, self._session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)

    @property
    def cookie(self) -> str:
        """Cookies know no ports: two servers on one machine keep theirs apart by name."""
        return f"posteer-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            raise ValueError(f"{scope['type']} is not spoken here")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value.decode("latin-1"))
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _plain(send, *refusal)
            return
        if self._has_token(scope):
            await self._welcome(send)
            return
        if not self._has_cookie(headers):
            await _plain(send, 401, "open the address that posteer explore printed")
            return
        await self.app(scope, receive, _guarded(send))

    def _refusal(self, scope: Scope, headers: dict[bytes, list[str]]) -> tuple[int, str] | None:
        hosts, origins = headers.get(b"host", []), headers.get(b"origin", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return 421, "this server is called otherwise"
        reads = scope["method"] in ("GET", "HEAD")
        if any(origin != f"http://{hosts[0]}" for origin in origins) or len(origins) > 1:
            return 403, "asked from another site"
        if not reads and not origins:
            return 403, "asked without an origin"
        if headers.get(b"sec-fetch-site", ["none"])[0] not in ("same-origin", "none"):
            top = headers.get(b"sec-fetch-mode", [""])[0] == "navigate" and reads
            if not top:  # a link to the first address may be followed from anywhere
                return 403, "asked from another site"
        if not reads and not _is_json(headers):
            return 415, "expected application/json"
        if not reads and not _is_small(headers):
            return 413, f"expected a body of at most {LARGEST_BODY} bytes that says how long it is"
        return None

    def _is_ours(self, host: str) -> bool:
        whole = re.fullmatch(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::(\d+))?", host)
        if whole is None or (whole[2] or PLAIN_PORT) != str(self.port):
            return False
        bare = whole[1].removeprefix("[").removesuffix("]").lower()
        return bare in self.hosts or (self.anywhere and _is_address(bare))

    def _has_token(self, scope: Scope) -> bool:
        if scope["path"] != "/" or scope["method"] != "GET":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return len(given) == 1 and secrets.compare_digest(given[0].encode(), self.token.encode())

    def _has_cookie(self, headers: dict[bytes, list[str]]) -> bool:
        """Among those of other servers on this machine, whatever they are made of."""
        parts = ";".join(headers.get(b"cookie", [])).split(";")
        pairs = (part.strip().partition("=") for part in parts)
        given = [value.encode() for name, _, value in pairs if name == self.cookie]
        return any(secrets.compare_digest(value, self._session.encode()) for value in given)

    async def _welcome(self, send: Send) -> None:
        """The token for a cookie, and a page that goes on to the address without it: were it a
        redirection, a browser that follows a link from elsewhere would keep the cookie back."""
        kept = f"{self.cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        more = {"content-type": "text/html; charset=utf-8", "set-cookie": kept}
        await _plain(send, 200, WELCOME, more)


def _is_json(headers: dict[bytes, list[str]]) -> bool:
    kinds = [kind.partition(";")[0].strip().lower() for kind in headers.get(b"content-type", [])]
    return kinds == ["application/json"]


def _is_small(headers: dict[bytes, list[str]]) -> bool:
    """A server reads no more of a body than it is said to have."""
    sizes = headers.get(b"content-length", [])
    return len(sizes) == 1 and sizes[0].isdecimal() and int(sizes[0]) <= LARGEST_BODY


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _guarded(send: Send) -> Send:
    """Answers with our headers; a page that brings a policy of its own keeps it."""

    async def say(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", []))
            own = {name.lower() for name, _ in given}
            more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in own]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return say


async def _plain(send: Send, status: int, text: str, more: dict[str, str] | None = None) -> None:
    body = text.encode()
    headers = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
    pairs = [(n.encode(), v.encode()) for n, v in {**HEADERS, **headers, **(more or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
