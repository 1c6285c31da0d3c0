"""What every room stands on; what nearly all of them use, under one name.

Nothing here loads torch: `posteer --help` answers at once.
"""

from posteer.core.errors import InputError, require
from posteer.core.progress import Progress, phase, timed
from posteer.core.shapes import Bool, Float, Int
from posteer.core.spec import Spec, integer, number, parse_spec, table

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
