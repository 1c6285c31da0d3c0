"""Assets and data joined to one HTML file that loads nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from posteer.core.errors import require

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)
_TOP = re.compile(r"^(?:async )?(?:function|const|let|class) ([A-Za-z_]\w*)", re.MULTILINE)


def asset(name: str) -> str:
    """The text of an asset."""
    return files("posteer.views.pages").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def joined(entry: str) -> str:
    """A module with all that it imports, each once and before its importers, as one script.

    Modules import by name alone and share one scope then: a name that two of them have is refused.
    """
    parts: dict[str, str] = {}

    def add(name: str, within: tuple[str, ...]) -> None:
        require(name not in within, f"{name} imports itself by way of {', '.join(within)}")
        if name in parts:
            return
        text = asset(name)
        for other in _IMPORT.findall(text):
            add(other, (*within, name))
        parts[name] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(entry, ())
    seen: dict[str, str] = {}
    for name, text in parts.items():
        for top in _TOP.findall(text):
            other = seen.setdefault(top, name)
            require(other == name, f"{name} and {other} both have {top}")
    return "\n".join(parts.values())


def safe_json(value: Any) -> str:
    """JSON that ends no script and begins no markup, wherever its texts come from.

    >>> print(safe_json({"model": "</script><b>"}))
    {"model":"\\u003c/script\\u003e\\u003cb\\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def one_file(title: str, entry: str, style: str, data: Any) -> str:
    """A page: its policy allows its own script and style, by their hashes, and nothing else."""
    script, sheet = f'"use strict";\n{joined(entry)}', asset(style)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(sheet)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    return (
        f"{_head(title, policy)}"
        f"<style>{sheet}</style>\n</head>\n<body>\n"
        f"{_BODY}"
        f'<script type="application/json" id="data">{safe_json(data)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def served_page(title: str, entry: str, style: str, assets: str) -> str:
    """A page whose modules and style sheet are served beside it, below `assets`."""
    return (
        f"{_head(title)}"
        f'<link rel="stylesheet" href="{assets}/{style}">\n</head>\n<body>\n'
        f"{_BODY}"
        f'<script type="module" src="{assets}/{entry}"></script>\n</body>\n</html>\n'
    )


def _head(title: str, policy: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{policy}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'
    )


_BODY = (
    '<div id="page"><noscript><p>This page needs JavaScript to show its data.</p></noscript>'
    "</div>\n"
)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
