"""A reader of JSON Schema, as much of it as `posteer/schema.json` uses."""

import json
from functools import cache
from importlib.resources import files

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KNOWN = {
    *("$ref", "additionalProperties", "anyOf", "const", "description", "items", "properties"),
    *("required", "type"),
}


@cache
def definitions():
    return json.loads((files("posteer") / "schema.json").read_text())["$defs"]


def is_kind(value, name):
    truth = isinstance(value, bool) and name in ("integer", "number")
    return isinstance(value, KINDS[name]) and not truth


def faults(value, schema, where=""):
    """Where a value is not as the schema says."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    if "$ref" in schema:
        yield from faults(value, definitions()[schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema and all(list(faults(value, one)) for one in schema["anyOf"]):
        yield f"{where}: none of the alternatives"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r}"
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(is_kind(value, name) for name in names):
        yield f"{where}: {value!r} is no {' or '.join(names)}"
    if isinstance(value, list):
        for at, entry in enumerate(value):
            yield from faults(entry, schema.get("items", {}), f"{where}[{at}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (f"{where}.{key}: missing" for key in schema.get("required", ()) - value.keys())
        rest = schema.get("additionalProperties", {})
        for key, entry in value.items():
            if key not in known and rest is False:
                yield f"{where}.{key}: unknown"
            else:
                yield from faults(entry, known.get(key, rest), f"{where}.{key}")


def promised(command):
    """The keys that a command always prints."""
    return set(definitions()[command]["required"])
