"""What the errors of definitions, routing and permissions say and carry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durable.errors import (
    AccessRefused,
    BuiltIn,
    DefinitionConflict,
    DurableError,
    InUse,
    InvalidDefinition,
    Unconfirmed,
    Unknown,
    UnknownExchange,
    UnknownQueue,
    UnknownStream,
    Unroutable,
    nearest,
)


@pytest.mark.parametrize("error", [UnknownExchange, UnknownQueue, UnknownStream])
def test_what_is_unknown_is_named_with_what_is_near(error: type[Unknown]) -> None:
    near = error("ordrs", ["invoices", "orders"])
    assert (near.name, near.nearest, near.kind) == ("ordrs", "orders", error.kind)
    assert str(near) == f"no {error.kind} 'ordrs': did you mean 'orders'?"
    assert str(error("x", ["orders"])) == f"no {error.kind} 'x': declare it first"


def test_a_hint_looks_at_a_bounded_number_of_names() -> None:
    looked = 0

    def names() -> Iterator[str]:
        nonlocal looked
        for number in range(100_000):
            looked += 1
            yield f"{number:0250}"

    assert nearest("x" * 250, names()) == ""
    assert looked < 100


def test_a_name_without_any_of_its_length_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: to prepare a name of 1 MB for it took 0.2 s, in which a broker did nothing else."""
    monkeypatch.setattr("durable.errors.root.get_close_matches", None)
    assert nearest("x" * 1_000_000, ["orders"]) == ""
    assert nearest("x" * 1_000_000, ["y" * 1_000_000]) == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidDefinition("queue", "ttl_s", -1, "more"), "queue: ttl_s is -1: want more"),
        (InvalidDefinition("queue", "a", 1, "2").at("queues[3]"), "queues[3]: a is 1: want 2"),
        (
            DefinitionConflict("queue", "jobs", ["max_length: existing 10, requested 20"]),
            "queue 'jobs' exists with other settings (max_length: existing 10, requested 20): "
            "declare it with the existing settings, or delete it first",
        ),
        (
            BuiltIn("amq.topic", "it cannot be deleted"),
            "exchange 'amq.topic' is built in: it cannot be deleted; declare an exchange of your own",
        ),
        (
            InUse("exchange", "e", "bindings from it: 2; unbind them first"),
            "exchange 'e' is in use: bindings from it: 2; unbind them first",
        ),
        (
            InUse("exchange", "e", "bindings from it: 2; unbind them first", "if_unused"),
            "exchange 'e' is in use: bindings from it: 2; unbind them first, or delete it without if_unused",
        ),
        (
            AccessRefused("web", "write", "exchange", "e"),
            "cluster 'web' may not write exchange 'e': give it a write permission that matches this name",
        ),
        (
            AccessRefused("web", "capture", "pattern", "orders.>", "/"),
            "cluster 'web' may not capture pattern 'orders.>' in vhost '/': give it a capture permission "
            "that matches the text of this pattern",
        ),
        (Unroutable("", "jobs"), "there is no queue 'jobs': declare it first"),
        (Unroutable("events", "a.b"), "exchange 'events' routes 'a.b' to no queue: bind a queue"),
        (
            Unroutable("events", "ordr.eu", ["orders.eu", "other"]),
            "exchange 'events' routes 'ordr.eu' to no queue: did you mean 'orders.eu', which "
            "has a binding?",
        ),
        (Unroutable("events", "a.b", ["other"]), "exchange 'events' routes 'a.b' to no queue: bind a queue"),
        (Unconfirmed(2, "gone"), "unknown whether 2 messages were stored: gone"),
        (Unconfirmed(0, "gone", 3), "3 messages were not sent: gone"),
        (
            Unconfirmed(2, "gone", 3),
            "unknown whether 2 messages were stored, and 3 messages were not sent: gone",
        ),
        (Unconfirmed(0, "gone"), "gone"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(error: DurableError, text: str) -> None:
    assert str(error) == text
