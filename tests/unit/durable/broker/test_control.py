"""Whose fault a call that fails is: the client's arguments, or ours."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from durable.broker.control import OPERATIONS, Control, _signature, check_call
from durable.errors import Malformed
from durable.protocol.calls import Call


def control(**operations: Any) -> Control:
    """On a registry that has these, for somebody who may do everything."""
    registry = SimpleNamespace(queues={}, streams={}, **operations)
    running: Any = SimpleNamespace(vhost=SimpleNamespace(registry=registry))
    peer: Any = SimpleNamespace(check=lambda _: None, hide_suggestions=nullcontext)
    nothing: Any = None
    return Control(running, peer, nothing, nothing)


async def test_a_mistake_of_ours_is_not_told_as_the_clients() -> None:
    """Found: any TypeError of the broker was told as arguments that are none, and logged by nobody."""

    def queue(name: str) -> None:
        raise TypeError("of the broker's own")

    with pytest.raises(TypeError, match="of the broker's own"):
        await control(queue=queue).call(Call(1, "purge_queue", {"name": "jobs"}))


@pytest.mark.parametrize(
    ("operation", "arguments", "why"),
    [
        ("purge_queue", {}, "missing a required argument: 'name'"),
        ("purge_queue", {"name": "jobs", "if_full": True}, "unexpected keyword argument 'if_full'"),
        ("purge_queue", {"name": "jobs", "self": 1}, "self"),
        ("purge_queue", {"name": ["jobs"]}, "name is list, not str"),
        ("delete_queue", {"name": "jobs", "if_empty": 1}, "if_empty is int, not bool"),
        ("declare_queue", {"definition": [1]}, "definition is list, not dict"),
        ("import_definitions", {"definitions": "{}"}, "definitions is str, not bytes"),
        ("delete_cursor", {"stream": "audit", "cursor": None}, "cursor is NoneType, not str"),
        ("destroy", {}, "unknown operation 'destroy'"),
    ],
)  # fmt: skip
def test_arguments_that_no_operation_takes_are_named(
    operation: str, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(Malformed, match=why):
        check_call(Call(1, operation, arguments))


def test_all_operations_say_of_what_type_their_arguments_are() -> None:
    for operation in OPERATIONS:
        for name, one in _signature(operation).parameters.items():
            assert name == "self" or one.annotation in (str, bool, bytes, dict[str, Any])
