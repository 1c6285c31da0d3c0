"""What machines read: one line of strict JSON, as `schema.json` describes it."""

from __future__ import annotations

import json
from typing import Any

from posteer.results import plain

SCHEMA_VERSION = 1
"""Keys are added under the same number; where one is renamed or changes its meaning, it grows."""


def print_json(value: Any) -> None:
    """One line; what JSON cannot hold (nan, infinities) is null. An object says its version."""
    whole = {"schema_version": SCHEMA_VERSION, **value} if isinstance(value, dict) else value
    print(json.dumps(plain(whole), allow_nan=False))


def print_record(record: Any) -> None:
    """The keys that a record promises."""
    print_json(record.to_json())
