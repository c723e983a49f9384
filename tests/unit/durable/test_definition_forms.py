"""Definitions out and in: for the log and as JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable.definition_forms import (
    check_consistent,
    export_definitions,
    from_plain,
    read_definitions,
    to_plain,
)
from durable.definitions import (
    BindingDefinition,
    Definition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
    sorted_arguments,
)
from durable.errors import (
    BuiltIn,
    DefinitionConflict,
    DurableError,
    InvalidDefinition,
    UnknownExchange,
    UnknownQueue,
)

names = st.text("abcä .", min_size=1, max_size=5).filter(lambda name: name[:4] != "amq.")
counts = st.none() | st.integers(1, 2**63 - 1)
seconds = st.none() | st.floats(0.001, 1e9) | st.integers(1, 10**9)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), names
)  # fmt: skip
definitions: st.SearchStrategy[Definition] = st.one_of(
    st.builds(
        QueueDefinition, name=names, exclusive=st.booleans(), max_length=counts, ttl_s=seconds,
        dead_letter_exchange=names, dead_letter_routing_key=st.none() | names,
        max_priority=st.integers(0, 9),
    ),
    st.builds(ExchangeDefinition, name=names, alternate=st.none() | names, internal=st.booleans()),
    st.builds(
        BindingDefinition, exchange=names, destination=names, to_exchange=st.booleans(), key=names,
        arguments=st.dictionaries(names, scalars).map(sorted_arguments),
    ),
    st.builds(
        StreamDefinition, name=names, max_age_s=seconds,
        patterns=st.sampled_from([(), ("a.>",), ("a", "b.*.c")]),
    ),
    st.builds(
        PermissionDefinition, cluster=st.sampled_from(["a", "b"]), write=st.just("a.*"),
        capture=st.sampled_from(["", ".*", r"a\..*"]),
    ),
)  # fmt: skip


@given(definitions)
def test_what_goes_out_comes_back(definition: Definition) -> None:
    definition.check()
    plain = to_plain(definition)
    through_log = msgpack.unpackb(msgpack.packb(plain))
    through_json = json.loads(json.dumps(plain, allow_nan=False))
    for one in (plain, through_log, through_json):
        back = from_plain(definition.kind, one)
        back.check()
        assert repr(back) == repr(definition)  # repr tells 1 from 1.0 and True.


def test_what_has_a_default_may_be_absent() -> None:
    assert from_plain("queue", {"name": "q"}) == QueueDefinition(name="q")


def test_a_permission_of_a_release_without_capture_allows_any_pattern() -> None:
    said = {"cluster": "web", "configure": "s", "write": "", "read": ""}
    read = from_plain("permission", said)
    assert read == PermissionDefinition(cluster="web", configure="s", capture=".*")
    assert to_plain(read) == {**said, "capture": ".*"}, "an export shows it"
    exported = {"version": 1, "vhost": "/", "permissions": [said]}
    assert read_definitions(exported) == ("/", Definitions(permissions=(read,)))


def test_one_text_is_one_pattern() -> None:
    """Found: Python took it, and the command and an import said that it was no list."""
    one = from_plain("stream", {"name": "s", "patterns": "orders.>"})
    assert one == StreamDefinition(name="s", patterns=("orders.>",))


@pytest.mark.parametrize(
    ("kind", "plain", "text"),
    [
        ("queue", {"name": "q", "max_lenght": 5}, "one of name, .*; did you mean max_length[?]"),
        ("queue", {"name": "q", 5: 5}, "a field's name is 5: want one of"),
        ("queue", {"max_length": 5}, "queue: name is None: want a value, but it is missing"),
        ("binding", {"exchange": "e"}, "binding: destination is None"),
        ("queue", ["q"], "want fields name, durability"),
        ("que", {"name": "q"}, "kind is 'que': want one of exchange, queue"),
    ],
)
def test_what_is_no_definition(kind: str, plain: Any, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=text):
        from_plain(kind, plain)


@settings(max_examples=50)
@given(
    st.sampled_from(["queue", "exchange", "binding", "stream", "permission"]),
    st.dictionaries(
        st.sampled_from(
            ["name", "exchange", "destination", "cluster", "patterns", "arguments", "key"]
        ),
        st.recursive(
            st.none() | st.integers() | st.text() | st.floats(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
            max_leaves=5,
        ),
    ),
)
def test_nothing_that_can_be_parsed_does_anything_but_pass_or_be_refused(
    kind: str, plain: dict[str, Any]
) -> None:
    with suppress(InvalidDefinition):
        from_plain(kind, plain).check()


VHOST = Definitions(
    queues=(QueueDefinition(name="q"),),
    exchanges=(ExchangeDefinition(name="e", type="topic"),),
    streams=(StreamDefinition(name="s", patterns=("orders.>",)),),
    bindings=(
        BindingDefinition(exchange="e", destination="q", key="a.*"),
        BindingDefinition(
            exchange="amq.headers", destination="s", arguments=(("a", 1), ("b", None))
        ),
        BindingDefinition(exchange="amq.fanout", destination="e", to_exchange=True),
    ),
    permissions=(PermissionDefinition(cluster="web", read=".*"),),
)


def test_a_vhost_out_and_in() -> None:
    plain = json.loads(json.dumps(export_definitions(VHOST, "/")))
    assert list(plain)[:2] == ["version", "vhost"]
    assert read_definitions(plain) == ("/", VHOST)
    assert read_definitions({"version": 1, "vhost": "v"}) == ("v", Definitions())
    list(check_consistent(VHOST))
    list(check_consistent(VHOST, VHOST))


def binding(exchange: str, to: str, *, to_exchange: bool = False) -> BindingDefinition:
    return BindingDefinition(exchange=exchange, destination=to, to_exchange=to_exchange)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"bindings": (binding("e", "x"),)}, UnknownQueue, "no queue 'x'"),
        ({"bindings": (binding("x", "q"),)}, UnknownExchange, "no exchange 'x'"),
        ({"bindings": (binding("e", "q", to_exchange=True),)}, UnknownExchange, "'q'"),
        ({"bindings": (binding("", "q"),)}, BuiltIn, "default exchange"),
        ({"bindings": (binding("e", "", to_exchange=True),)}, BuiltIn, "default exchange"),
        ({"bindings": (binding("e", "q"),) * 2}, InvalidDefinition, "each once"),
        ({"queues": (QueueDefinition(name="q"),) * 2}, InvalidDefinition, "name is 'q': want each"),
        ({"exchanges": (ExchangeDefinition(name="e"),) * 2}, InvalidDefinition, "each once"),
        ({"permissions": (PermissionDefinition(cluster="a"),) * 2}, InvalidDefinition, "each once"),
        ({"streams": (StreamDefinition(name="q"),)}, InvalidDefinition, "queue or stream: name is"),
        ({"exchanges": (ExchangeDefinition(name="amq.topic"),)}, BuiltIn, "existing 'topic', requested 'direct'"),
    ],
)  # fmt: skip
def test_nothing_wrong_gets_in(
    changes: dict[str, Any], error: type[DurableError], text: str
) -> None:
    bare = replace(VHOST, bindings=())
    with pytest.raises(error, match=text):
        list(check_consistent(replace(bare, **changes)))


def test_no_wrong_value_gets_in() -> None:
    wrong = Definitions(queues=(QueueDefinition(name="q", ttl_s=-1),))
    with pytest.raises(InvalidDefinition, match=r"queues\[0\]: ttl_s"):
        read_definitions(export_definitions(wrong, "/"))


def test_what_exists_already_counts() -> None:
    more = Definitions(bindings=(binding("e", "q"), binding("amq.direct", "s")))
    list(check_consistent(more, VHOST))
    with pytest.raises(UnknownExchange):
        list(check_consistent(more))
    with pytest.raises(
        DefinitionConflict, match=r"queue 'q' exists .*max_length: existing None, requested 5"
    ):
        list(
            check_consistent(Definitions(queues=(QueueDefinition(name="q", max_length=5),)), VHOST)
        )


@pytest.mark.parametrize(
    ("wanted", "differences"),
    [
        (
            Definitions(queues=(QueueDefinition(name="new"), QueueDefinition(name="s"))),
            ("kind: existing stream, requested queue",),
        ),
        (
            Definitions(streams=(StreamDefinition(name="new"), StreamDefinition(name="q"))),
            ("kind: existing queue, requested stream",),
        ),
    ],
)
def test_a_name_of_the_other_kind_is_the_conflict_that_declaring_it_is(
    wanted: Definitions, differences: tuple[str, ...]
) -> None:
    """Found: it was InvalidDefinition, as if the name could never be right."""
    with pytest.raises(DefinitionConflict) as caught:
        list(check_consistent(wanted, VHOST))
    assert caught.value.differences == differences


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ({}, "version is None: want 1, but it is missing"),
        ({"vhost": "/"}, "version is None: want 1, but it is missing"),
        ({"version": 2, "vhost": "/"}, "version is 2: want 1"),
        ({"version": True, "vhost": "/"}, "version is True: want 1"),
        ({"version": 1}, "vhost is None: want 1 to 255 bytes.*, but it is missing"),
        ({"version": 1, "vhost": "/", "queus": []}, "did you mean queues"),
        ({"version": 1, "vhost": "/", "queues": {}}, "queues is {}: want a list"),
        ({"version": 1, "vhost": "/", "queues": [{"name": "q"}, {}]}, r"queues\[1\]: name is None"),
        ([], "want fields version, vhost"),
    ],
)
def test_what_is_no_export(plain: Any, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=text):
        read_definitions(plain)
