"""Writes docs/configuration.md from the docstrings of MeshConfig: python docs/make_configuration.py"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from mesh.config import AT_LEAST, AT_MOST, RELATIONS, MeshConfig
from mesh.settings import DEFAULTS, TYPES, UNITS

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/configuration.md"
KINDS = {
    "bool": "true or false", "int": "count", "float": "seconds", "str": "text", "Path": "path",
    "tuple[str, ...]": "list of texts",
}  # fmt: skip
INTRODUCTION = """\
# Configuration

<!-- Written by `python docs/make_configuration.py` from mesh/config.py; do not edit. -->

Every setting of a node. If one is set in several places, the first of these wins:

1. a keyword: `mesh.join("shop", heartbeat_s=0.5)`; on the command line an option, as `--listen`;
2. a variable: `MESH_` and the name in capitals, `MESH_HEARTBEAT_S=0.5`;
3. `mesh.toml`: the file that `MESH_CONFIG` names, else `mesh.toml` in the current directory, if
   it exists. One setting per line, no sections: `heartbeat_s = 0.5`. With `network_secret` in it, it has
   to be for its owner alone, as a key file: `chmod 600 mesh.toml`.

The three settings about keys count as one: any of them in a higher place replaces those in lower places.
Two of them in one place are an error. So is an unknown name in any place. An empty variable counts as not set.
`mesh doctor` shows which settings are in force and where each was set.

How values are written:

| type | keyword | mesh.toml | variable |
|---|---|---|---|
| true or false | `False` | `false` | `false`, `no`, `0`; `true`, `yes`, `1` |
| count, seconds | `0.5` | `0.5` | `0.5` |
| bytes | `65536`, `"64KiB"` | `65536`, `"64KiB"` | `65536`, `64KiB`; KiB, MiB, GiB |
| list of texts | `["tcp://a:1", "tcp://b:2"]`, or one text | the same | `tcp://a:1,tcp://b:2` |
| path | `"~/network.secret"`, or a `Path` | `"~/network.secret"` | `~/network.secret` |

One text in place of a list is split at its commas: `seeds="tcp://a:1"` is one seed. Relative
paths count from the current directory.

`clusters` is not a setting: it is the argument of `mesh.join`, or `--cluster`.
"""
ENDING = """
## Relations

Checked when the settings are read; the error names both.

"""


def documented() -> list[tuple[str, str, str]]:
    """(section, setting, meaning) in the order of the source; a section is a comment line."""
    source = (ROOT / "mesh/config.py").read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    (body,) = (one.body for one in tree.body if isinstance(one, ast.ClassDef))
    found: list[tuple[str, str, str]] = []
    for statement, following in pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        assert isinstance(following, ast.Expr)
        assert isinstance(following.value, ast.Constant)
        titles = [line[6:] for line in lines[: statement.lineno] if line.startswith("    # ")]
        meaning = " ".join(str(following.value.value).split())
        if statement.target.id in TYPES:
            found.append((titles[-1], statement.target.id, meaning))
    assert len(found) == len(fields(MeshConfig)) - 1
    return found


def unit(name: str) -> str:
    if TYPES[name] in ("int", "float") and re.search(r"_s(_max)?$", name):
        return "seconds"
    if TYPES[name] == "int" and "bytes" in name:
        return "bytes"
    return KINDS[TYPES[name].removesuffix(" | None")]


def shown(name: str, value: Any) -> str:
    """A value as it would be written in a variable."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"`{value}`"
    if unit(name) == "bytes":
        for word, size in (("GiB", "GIB"), ("MiB", "MIB"), ("KiB", "KIB")):
            if value and value % UNITS[size] == 0:
                return f"{value // UNITS[size]} {word}"
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def page() -> str:
    lines = [INTRODUCTION]
    last = ""
    for section, name, meaning in documented():
        if section != last:
            lines += [f"\n## {section}\n", "| setting | unit | default | at least | at most | meaning |", "|---|---|---|---|---|---|"]  # fmt: skip
            last = section
        least, most = (shown(name, of[name]) if name in of else "" for of in (AT_LEAST, AT_MOST))
        default = shown(name, DEFAULTS.get(name))
        lines.append(f"| `{name}` | {unit(name)} | {default} | {least} | {most} | {meaning} |")
    lines.append(ENDING.rstrip("\n") + "\n")
    for name, factor, other in RELATIONS:
        times = f"{factor:g} times " if factor != 1 else ""
        lines.append(f"- `{name}` is at least {times}`{other}`")

    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page())
