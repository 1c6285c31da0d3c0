"""What people see: terminal, figures, pages. The only rooms that write for people.

Views of a record by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.registry import Registry

VIEWS: Registry[Callable[[Any], None]] = Registry(
    "view",
    "views",
    {
        "panel": "posteer.views.terminal.show:show",
        "details": "posteer.views.terminal.show:details",
        "json": "posteer.views.machine:print_record",
    },
)
"""Each shows a record: an elicitation, a judgement, a comparison."""
