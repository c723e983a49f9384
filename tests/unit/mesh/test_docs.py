"""The pages keep up with the code: every setting, error and counter is in them."""

from __future__ import annotations

import runpy
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args, get_type_hints

import pytest

import durable
import durable.errors
import mesh
from mesh.statistics import NodeStatistics

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guide.md").read_text()


def test_the_configuration_page_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "make_configuration.py"))
    say = "out of date: run `python docs/make_configuration.py`"
    assert (DOCS / "configuration.md").read_text() == made["page"](), say


@pytest.mark.parametrize("package", [mesh, durable])
def test_the_guide_names_every_error(package: ModuleType) -> None:
    for name in package.__all__:
        one = getattr(package, name)
        if isinstance(one, type) and issubclass(one, Exception):
            assert f"`{name}`" in GUIDE or name == "MeshError", name


def test_every_error_of_the_durable_tier_can_be_imported_from_it() -> None:
    classes = {name for name, one in vars(durable.errors).items() if isinstance(one, type)}
    assert classes <= set(durable.__all__)
    assert all(getattr(durable, name) is getattr(durable.errors, name) for name in classes)


def test_the_guide_names_every_counter() -> None:
    for group, kind in get_type_hints(NodeStatistics).items():
        assert f"| `{group}`" in GUIDE
        (row,) = (line for line in GUIDE.splitlines() if line.startswith(f"| `{group}`"))
        counted = next((one for one in get_args(kind) if isinstance(one, type)), kind)
        for field in fields(counted) if is_dataclass(counted) else ():
            assert f"`{field.name}`" in row, f"{group}: {field.name}"
