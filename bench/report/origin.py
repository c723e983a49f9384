"""Lines about where figures come from, shared by all pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def hardware(machine: Mapping[str, Any]) -> str:
    return f"{machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}, {machine['python']}"


def not_measured(machine: Mapping[str, Any]) -> Iterator[str]:
    for failure in machine.get("failures", ()):
        yield f"- not measured: {failure}"
