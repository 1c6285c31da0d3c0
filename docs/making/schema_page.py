"""docs/SCHEMA.md from the schema in the package.

python docs/making/schema_page.py docs/SCHEMA.md
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

OPENING = """\
# JSON

Every command but `explore` and `completion` takes `--json` and prints one line.
What it holds is described by a JSON Schema that
is installed with posteer, `posteer/schema.json`; the tests hold every command against it.

- An object begins with `schema_version`, now {version}. Keys are added under the same number; it
  grows where one is renamed or changes its meaning.
- The same keys are always there. A figure that does not apply, or that JSON cannot hold, is `null`.
- `found.to_json()` in Python gives the same object without the version.

```python
import json
from importlib.resources import files

schema = json.loads((files("posteer") / "schema.json").read_text())
print(sorted(schema["$defs"]["elicit"]["required"])[:3])
```

Words are explained in the [glossary](GLOSSARY.md).
"""


def kind_of(what: dict[str, Any]) -> str:
    """What a key holds, in short."""
    if "const" in what:
        return str(what["const"])
    if "$ref" in what:
        name = what["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.replace(' ', '-')})"
    if "anyOf" in what:
        return " or ".join(kind_of(one) for one in what["anyOf"])
    names = what.get("type", "anything")
    names = [names] if isinstance(names, str) else names
    several = f"list of {kind_of(what['items'])}" if "items" in what else "array"
    return " or ".join(several if name == "array" else name for name in names)


def section(name: str, what: dict[str, Any], level: str) -> list[str]:
    """One definition: what it is, and its keys."""
    lines = [f"{level} {name}", "", f"`{name}`: {what.get('description', '')}", ""]
    rows = what.get("properties", {})
    if rows:
        lines += ["| key | holds | |", "|---|---|---|"]
        lines += [f"| `{k}` | {kind_of(v)} | {v.get('description', '')} |" for k, v in rows.items()]
        lines += [""]
    elif "items" in what:
        lines += [f"A list of {kind_of(what['items'])}.", ""]
    return lines


def page(schema: dict[str, Any]) -> str:
    """All of it: commands first, then the parts that they share."""
    known = schema["$defs"]
    commands = {k: v for k, v in known.items() if v["description"].startswith("posteer ")}
    version = commands["elicit"]["properties"]["schema_version"]["const"]
    lines = [OPENING.format(version=version), "## Commands", ""]
    for name, what in commands.items():
        lines += section(name, what, "###")
    lines += ["## Parts", ""]
    for name, what in known.items():
        if name not in commands:
            lines += section(name, what, "###")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(json.loads((files("posteer") / "schema.json").read_text())))
