"""What machines read: one line of strict JSON."""

from __future__ import annotations

import json
from typing import Any

from posteer.results import plain


def print_json(value: Any) -> None:
    """One line; what JSON cannot hold (nan, infinities) is null."""
    print(json.dumps(plain(value), allow_nan=False))


def print_record(record: Any) -> None:
    """The keys that a record promises."""
    print_json(record.to_json())
