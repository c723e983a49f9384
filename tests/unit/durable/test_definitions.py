"""What can be declared, and what cannot."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from durable.definitions import (
    BUILT_IN,
    BindingDefinition,
    Definition,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
    differences,
    sorted_arguments,
)
from durable.errors import InvalidDefinition

QUEUE = QueueDefinition(name="q", dead_letter_exchange="d")
EXCHANGE, STREAM = ExchangeDefinition(name="e"), StreamDefinition(name="s")
BINDING = BindingDefinition(exchange="e", destination="q")
PERMISSION = PermissionDefinition(cluster="web")
ALL: list[Definition] = [QUEUE, EXCHANGE, STREAM, BINDING, PERMISSION]

NOT_NAMES = ["", "x" * 256, "ä" * 128, "a\nb", "\x7f", "\x80", "\ud800", 5, None, b"q"]
NOT_COUNTS = [0, -1, 1.0, True, "1", 2**63, math.nan]
NOT_SECONDS = [0, -0.5, math.nan, math.inf, True, "1", 10**400]
NOT_FLAGS = [0, 1, None, "true"]
NOT_KEYS = ["x" * 256, "ä" * 128, "\ud800", 5, None]
WRONG: dict[str, tuple[Definition, dict[str, list[Any]]]] = {
    "queue": (
        QUEUE,
        {
            "name": [*NOT_NAMES, "mesh.", "mesh.q", "amq.gen"],
            "durability": ["ssd", "", None, ["disk"]],
            "exclusive": NOT_FLAGS, "auto_delete": NOT_FLAGS, "single_active_consumer": NOT_FLAGS,
            "max_length": NOT_COUNTS, "max_length_bytes": NOT_COUNTS, "delivery_limit": NOT_COUNTS,
            "overflow": ["drop", None, 1],
            "ttl_s": NOT_SECONDS, "expires_s": NOT_SECONDS,
            "dead_letter_exchange": NOT_NAMES[1:8],
            "dead_letter_routing_key": NOT_KEYS[:-1],
            "max_priority": [-1, 10, None, True, 1.0, "1"],
        },
    ),
    "exchange": (
        EXCHANGE,
        {
            "name": [*NOT_NAMES, "amq.default", "amq.x", "mesh.e"],
            "type": ["x-delayed", "", None, []],
            "alternate": NOT_NAMES[1:8],
            "auto_delete": NOT_FLAGS, "internal": NOT_FLAGS,
        },
    ),
    "stream": (
        STREAM,
        {
            "name": [*NOT_NAMES, "mesh.s"],
            "patterns": [["a"], "a", None, ("a..b",), ("a.>.b",), ("a.#",), ("a.+",), ("",), (5,), ("a", "a")],
            "max_age_s": NOT_SECONDS, "max_length": NOT_COUNTS, "max_length_bytes": NOT_COUNTS,
        },
    ),
    "binding": (
        BINDING,
        {
            "exchange": NOT_NAMES[1:], "destination": NOT_NAMES, "to_exchange": NOT_FLAGS,
            "key": NOT_KEYS,
            "arguments": [
                None, {}, [("a", 1)], (("b", 1), ("a", 1)), (("a", 1), ("a", 2)), (("a",),), ("ab",),
                (("", 1),), ((5, 1),), (("a", b"x"),), (("a", [1]),), (("a", math.nan),),
                (("a", math.inf),), (("a", 2**64),), (("a", "\ud800"),),
                (("x-match", "some"),), (("x-match", None),),
            ],
        },
    ),
    "permission": (
        PERMISSION,
        {
            "cluster": ["", "Web", "a b", None, 5],
            "configure": ["(", None, 5, "[a", "(" * 101 + ")" * 101, "x" * 65_537, "\ud800"],
            "write": ["*", "a|(?P<" + "x" * 5000], "read": ["(?P<x>a)(?P<x>b)", "(?u)(?a)"],
            "capture": ["*.new", None, "x" * 65_537],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_value_is_named_with_its_field_and_with_what_is_allowed(kind: str) -> None:
    good, wrong = WRONG[kind]
    assert {*wrong} == {one.name for one in fields(good)}
    good.check()
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidDefinition) as caught:
                replace(good, **{field: value}).check()
                pytest.fail(f"{field}={value!r} passed")
            error = caught.value
            assert error.kind == kind
            assert error.field.startswith(field)
            assert error.allowed in str(error)
            assert f"{kind}: {field}" in str(error)
            assert len(str(error)) < 500


@pytest.mark.parametrize(
    "definition",
    [
        *ALL, *BUILT_IN.values(),
        replace(QUEUE, name="x" * 255, max_length=1, ttl_s=0.001, expires_s=3600, max_priority=9),
        replace(QUEUE, name="a queue, ä", durability="memory", overflow="reject-publish"),
        replace(QUEUE, name="meshed", dead_letter_exchange="", dead_letter_routing_key=""),
        replace(EXCHANGE, name="amqx", alternate=""), replace(BINDING, exchange="", key="x" * 255),
        replace(STREAM, patterns=("orders.>", "*.eu"), max_age_s=10_000_000_000),
        replace(BINDING, arguments=(("a", -(2**63)), ("b", None), ("c", 1.5), ("x-match", "any"))),
        replace(PERMISSION, configure=".*", write="^(a|b)$", read="[[a]", capture=r"orders\..*"),
        replace(PERMISSION, configure="(" * 100 + "a" + ")" * 100, read="x" * 65_536),
    ],
)  # fmt: skip
def test_what_is_allowed(definition: Definition) -> None:
    definition.check()


def test_a_dead_letter_key_needs_an_exchange() -> None:
    lonely = QueueDefinition(name="q", dead_letter_routing_key="k")
    with pytest.raises(InvalidDefinition, match="dead_letter_routing_key is 'k': want None"):
        lonely.check()


def test_none_is_said_as_shells_and_json_write_it() -> None:
    """Found: `declare-queue jobs max_length=None` was refused with "or None"."""
    wrong: Any = "None"
    for one in (replace(QUEUE, max_length=wrong), replace(QUEUE, ttl_s=wrong)):
        with pytest.raises(InvalidDefinition, match=r"or None \(null in JSON"):
            one.check()


def test_an_error_shows_the_beginning_of_a_long_value() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        QueueDefinition(name="x" * 10_000).check()
    assert len(str(caught.value)) < 300


def test_differences_say_what_is_there_and_what_was_asked() -> None:
    asked = replace(QUEUE, max_length=20, durability="memory")
    assert differences(replace(QUEUE, max_length=10), asked) == [
        "durability: existing 'disk', requested 'memory'", "max_length: existing 10, requested 20",
    ]  # fmt: skip
    assert differences(QUEUE, QUEUE) == []
    one, other = (StreamDefinition(name="s", patterns=some) for some in (("a", "b"), ("b", "a")))
    assert differences(one, other) == []


def test_bindings_are_the_same_when_their_arguments_have_the_same_types() -> None:
    def identity(value: Any) -> object:
        return replace(BINDING, arguments=sorted_arguments({"z": 1, "a": value})).identity

    assert identity(1) == identity(1)
    assert len({identity(one) for one in (1, True, 1.0, "1", None)}) == 5
    assert replace(BINDING, to_exchange=True).identity != BINDING.identity
    assert replace(BINDING, key="k").identity != BINDING.identity
