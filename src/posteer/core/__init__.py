"""What every room stands on; what nearly all of them use, under one name.

Shapes are loaded when first asked for, and nothing else here is heavy: `posteer --help` is quick.
"""

from typing import TYPE_CHECKING, Any

from posteer.core.errors import InputError, require
from posteer.core.progress import Progress, phase, timed
from posteer.core.spec import Spec, integer, number, parse_spec, table

if TYPE_CHECKING:
    from posteer.core.shapes import Bool, Float, Int

__all__ = [
    "Bool",
    "Float",
    "InputError",
    "Int",
    "Progress",
    "Spec",
    "integer",
    "number",
    "parse_spec",
    "phase",
    "require",
    "table",
    "timed",
]


def __getattr__(name: str) -> Any:
    if name not in ("Bool", "Float", "Int"):
        raise AttributeError(f"module 'posteer.core' has no attribute '{name}'")
    from posteer.core import shapes

    return getattr(shapes, name)
