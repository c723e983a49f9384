"""Names that are loaded when first used are the same for programs and for whoever checks their types."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAZY = ("mesh", "durable", "spark")


def shown(package: str) -> set[str]:
    """What stands under `if TYPE_CHECKING`."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    return {
        alias.asname or alias.name
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


@pytest.mark.parametrize("package", LAZY)
def test_checkers_are_shown_every_name_and_no_other(package: str) -> None:
    module = import_module(package)
    assert shown(package) == set(module.__all__)
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    bound = {one.id for line in tree.body if isinstance(line, ast.Assign) for one in ast.walk(line) if isinstance(one, ast.Name)}  # fmt: skip
    assert "__getattr__" not in bound, "a checker would take every name for one of the package's"


@pytest.mark.parametrize("package", [*LAZY, "security", "discovery"])
def test_a_package_says_that_it_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_a_state_is_its_name() -> None:
    """So that who compares `member.state` with the word of the guide is right."""
    state: str = import_module("mesh").State.STALLED
    assert state == "stalled"
