"""The pages keep up with the code: every setting, error and counter is in them."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args, get_type_hints

import pytest

import durable
import durable.errors
import mesh
from durable.definitions import QueueDefinition
from mesh.statistics import NodeStatistics

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guide.md").read_text()
SECTIONS = dict(
    part.split("\n", 1)
    for part in re.split("^##+ ", (DOCS / "api.md").read_text(), flags=re.MULTILINE)[1:]
)
"""Of the page of the API, by their titles."""
CLASSES = [
    mesh.Node, mesh.Subscription, mesh.Tunnel, mesh.Service, durable.Connection, durable.Publisher,
    durable.NumberedPublisher, durable.Deliveries, durable.Records, durable.Delivery,
    durable.DeliveryBatch, durable.Broker,
]  # fmt: skip


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


def test_the_guide_has_every_setting_of_a_queue_with_its_default() -> None:
    table = GUIDE.split("| setting of a queue | default |")[1].split("\n\n")[0]
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    told = {
        name: ast.literal_eval(row[1].strip("`"))
        for row in rows
        for name in re.findall(r"`(\w+)`", row[0])
    }
    assert told == {one.name: one.default for one in fields(QueueDefinition) if one.name != "name"}


def classes_of(title: str) -> list[type]:
    return [one for one in CLASSES if one.__name__ in title.split(", ")]


def names_of(text: str) -> set[str]:
    """In the first column of the tables: `async name(...)`, `name(...)`, or `name`."""
    first = (row.split(" | ")[0] for row in text.splitlines() if row.startswith("| "))
    return {name for cell in first for name in re.findall(r"`(?:async )?([\w.]+)", cell)}


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_the_page_of_the_api_has_every_public_method(one: type) -> None:
    (text,) = (text for title, text in SECTIONS.items() if one in classes_of(title))
    public = {name for name in dir(one) if not name.startswith("_")} - {"used_as"}
    assert public <= names_of(text)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_of_the_api_names_only_what_there_is(title: str) -> None:
    text, classes = SECTIONS[title], classes_of(title)
    there = {f"{tier.__name__}.{name}" for tier in (mesh, durable) for name in tier.__all__}
    for one in classes:
        there |= {*dir(one), *re.findall(r"self\.(\w+)", inspect.getsource(one))}
    assert names_of(text) <= there
    assert {*re.findall(r"`([A-Z]\w+)`", text)} <= {*mesh.__all__, *durable.__all__}
    for is_async, name, given in re.findall(r"`(async )?(\w+)\(([^`]*)\)`", text):
        methods = [getattr(one, name) for one in classes if hasattr(one, name)]
        known = {"*", "**settings"}.union(*(inspect.signature(one).parameters for one in methods))
        assert {word.partition("=")[0] for word in given.split(", ") if word} <= known, name
        for one in methods:
            assert bool(is_async) is inspect.iscoroutinefunction(one), name
