"""Every error of the tree gets from one end to the other."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from durable import errors
from durable.errors import BrokerError, DurableError, InvalidDefinition, copy_error
from durable.protocol.error_codec import describe_error, rebuild_error

ARGUMENTS: dict[str, Any] = {
    "differences": ["a: existing 1, requested 2"], "known": ["near"], "exclusive": True,
    "max_length": 5, "max_length_bytes": None, "details": {"n": 1},
}  # fmt: skip


def tree(kind: type[DurableError]) -> Iterator[type[DurableError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            yield child
            yield from tree(child)


def example(kind: type[DurableError]) -> DurableError:
    if kind.__init__ in (Exception.__init__, DurableError.__init__):
        return kind("why")
    given: list[Any] = []
    for one in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            return kind("why")
        number = one.annotation in ("int", "int | None")
        given.append(ARGUMENTS.get(one.name, 7 if number else f"a {one.name}"))
    return kind(*given)


@pytest.mark.parametrize("kind", list(tree(DurableError)), ids=lambda kind: kind.__name__)
def test_it_survives(kind: type[DurableError]) -> None:
    error = example(kind)
    code, details = msgpack.unpackb(msgpack.packb(describe_error(error)))
    again = rebuild_error(code, details)
    assert type(again) is kind
    assert str(again) == str(error)

    def plain(one: DurableError) -> dict[str, Any]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in vars(one).items()}

    assert plain(again) == plain(error)


@pytest.mark.parametrize("deep", [600, 100_000])
def test_what_is_nested_or_huge_is_told_without_it(deep: int) -> None:
    """Found: a RecursionError, which ended the session of whoever sent it; and an answer too large."""
    nested: Any = 1
    for _ in range(deep):
        nested = [nested]
    for value in (nested, "x" * (1 << 20), ["x" * (1 << 20)]):
        code, details = describe_error(InvalidDefinition("queue", "name", value, "a name"))
        again = rebuild_error(code, msgpack.unpackb(msgpack.packb(details)))
        assert isinstance(again, InvalidDefinition)
        assert str(again).startswith("queue: name is ")
        assert not hasattr(again, "value")


def test_what_this_release_does_not_know() -> None:
    again = rebuild_error("FromTheFuture", {"text": "why", "n": 1})
    assert isinstance(again, BrokerError)
    assert (again.code, again.details) == ("FromTheFuture", {"text": "why", "n": 1})
    assert describe_error(again) == ("FromTheFuture", {"text": "why", "n": 1})


def test_details_that_are_no_attributes_are_left_out() -> None:
    """Found: a key of bytes raised AttributeError; notes that are no list break add_note."""
    details: dict[Any, Any] = {"text": 5, b"x": 1, "__notes__": 3, "_private": 2, "queue": "q"}
    again = rebuild_error("QueueFull", details)
    assert vars(again) == {"queue": "q"}
    again.add_note("one")
    assert str(again) == "5"


@pytest.mark.parametrize("kind", list(tree(DurableError)), ids=lambda kind: kind.__name__)
def test_one_afresh_says_the_same_and_has_nothing_of_those_before(kind: type[DurableError]) -> None:
    kept = example(kind)
    kept.add_note("of whoever met it first")
    with pytest.raises(kind):
        raise kept from ValueError("why")
    fresh = copy_error(kept)
    assert (type(fresh), str(fresh), str(fresh.__cause__)) == (kind, str(kept), "why")
    assert fresh.__traceback__ is None
    assert {**vars(fresh), "__notes__": kept.__notes__} == vars(kept)
    fresh.add_note("of another one")
    assert kept.__notes__ == ["of whoever met it first"]
