"""Each type of exchange, and what all of them have in common."""

from __future__ import annotations

from typing import Any

import pytest

from durable.definitions import BindingDefinition, ExchangeDefinition, sorted_arguments
from durable.routing.exchange import Destination, Exchange

TYPES = ["direct", "fanout", "topic", "headers"]


def make(type: str) -> Exchange:  # noqa: A002
    return Exchange(ExchangeDefinition(name="e", type=type))


def to(queue: str, key: str = "k", **arguments: Any) -> BindingDefinition:
    sorted_ = sorted_arguments({name.replace("_", "-"): one for name, one in arguments.items()})
    return BindingDefinition(exchange="e", destination=queue, key=key, arguments=sorted_)


def found(exchange: Exchange, *keys: str, **headers: Any) -> set[str]:
    return {one.name for one in exchange.match(keys, headers)}


def test_direct_compares_the_whole_key() -> None:
    direct = make("direct")
    for binding in (to("p", "a"), to("q", "a"), to("q", "a.*"), to("r", "b")):
        assert direct.bind(binding)
    assert found(direct, "a") == {"p", "q"}
    assert found(direct, "a.b") == set()
    assert found(direct, "a.*") == {"q"}
    assert found(direct, "b", "a", "none") == {"p", "q", "r"}
    assert found(direct) == set()


def test_fanout_ignores_the_key() -> None:
    fanout = make("fanout")
    fanout.bind(to("p", "a"))
    fanout.bind(to("q", "b"))
    assert found(fanout, "whatever") == {"p", "q"}


def test_topic_takes_what_any_key_matches() -> None:
    topic = make("topic")
    topic.bind(to("p", "a.*"))
    topic.bind(to("q", "#.c"))
    assert found(topic, "a.b") == {"p"}
    assert found(topic, "a.c") == {"p", "q"}
    assert found(topic, "a.b", "c") == {"p", "q"}
    assert found(topic, "x", "y") == set()


def test_headers_ignores_the_key() -> None:
    headers = make("headers")
    headers.bind(to("p", "one", a=1))
    headers.bind(to("q", "two", a=1, b=2, x_match="any"))
    assert found(headers, "k", a=1) == {"p", "q"}
    assert found(headers, "k", b=2) == {"q"}
    assert found(headers, "k") == set()


@pytest.mark.parametrize("type_", TYPES)
def test_binding_twice_is_binding_once(type_: str) -> None:
    exchange = make(type_)
    assert exchange.bind(to("q"))
    assert not exchange.bind(to("q"))
    assert len(exchange.bindings) == 1
    assert found(exchange, "k") == {"q"}
    assert exchange.unbind(to("q").identity)
    assert not exchange.unbind(to("q").identity)
    assert found(exchange, "k") == set()
    assert not exchange.bindings


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("first", [0, 1])
def test_two_bindings_to_one_place_are_two(type_: str, first: int) -> None:
    """1 and True are equal in Python, and are two headers."""
    exchange = make(type_)
    bindings = [to("q", a=1), to("q", a=True), to("q", a=1.0)]
    for binding in bindings:
        assert exchange.bind(binding)
    headers: list[dict[str, Any]] = [{"a": 1}, {"a": True}, {"a": 1.0}]
    assert exchange.unbind(bindings.pop(first).identity)
    left = [found(exchange, "k", **one) for one in headers]
    if type_ == "headers":
        assert left.pop(first) == set()
    assert all(one == {"q"} for one in left)
    for binding in bindings:
        exchange.unbind(binding.identity)
    assert all(found(exchange, "k", **one) == set() for one in headers)


def test_a_queue_and_an_exchange_of_one_name_are_two_places() -> None:
    fanout = make("fanout")
    fanout.bind(to("x"))
    onward = BindingDefinition(exchange="e", destination="x", to_exchange=True)
    fanout.bind(onward)
    assert set(fanout.match((), {})) == {Destination("x"), Destination("x", True)}
    assert fanout.exchange_counts == {"x": 1}
    fanout.unbind(onward.identity)
    assert set(fanout.match((), {})) == {Destination("x")}
    assert fanout.exchange_counts == {}
