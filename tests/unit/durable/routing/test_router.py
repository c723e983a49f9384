"""Single situations of the router; the machine of test_router_model.py finds the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable.definitions import BUILT_IN, BindingDefinition, ExchangeDefinition, sorted_arguments
from durable.errors import (
    BuiltIn,
    DefinitionConflict,
    InternalExchange,
    InUse,
    UnknownExchange,
    UnknownQueue,
)
from durable.routing import router as module
from durable.routing.router import Router

from .test_cache import kept


def make(*exchanges: str, queues: str = "pqr", **settings: Any) -> Router:
    router = Router()
    for name in exchanges:
        router.declare_exchange(ExchangeDefinition(name=name, **settings))
    for name in queues:
        router.add_queue(name)
    return router


def link(source: str, to: str, key: str = "", **arguments: Any) -> BindingDefinition:
    """A binding; to an exchange when the name has more than a letter."""
    sorted_ = sorted_arguments(arguments)
    return BindingDefinition(
        exchange=source, destination=to, to_exchange=len(to) > 1, key=key, arguments=sorted_
    )


def test_the_default_exchange_leads_to_the_queue_of_that_name() -> None:
    router = make()
    assert router.route("", ("p",)) == ("p",)
    assert router.route("", ("x",)) == ()
    assert router.route("", ("q", "p", "x", "q")) == ("p", "q")
    router.remove_queue("p")
    assert router.route("", ("p",)) == ()


@pytest.mark.parametrize("name", ["", *BUILT_IN])
def test_built_in_exchanges_cannot_be_deleted_or_changed(name: str) -> None:
    router = make()
    with pytest.raises(BuiltIn, match="cannot be deleted"):
        router.delete_exchange(name)
    with pytest.raises(BuiltIn, match="cannot be"):
        router.declare_exchange(ExchangeDefinition(name=name, auto_delete=True))
    assert router.has_exchange(name)
    assert router.definitions() == ((), ())


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_exchanges_may_be_declared_as_they_are(name: str) -> None:
    router = make()
    assert router.check_exchange(BUILT_IN[name])
    router.declare_exchange(BUILT_IN[name])
    router.bind(link(name, "p"))
    assert router.definitions() == ((), (link(name, "p"),))


def test_nothing_is_bound_to_the_default_exchange() -> None:
    router = make("ex")
    to_default = BindingDefinition(exchange="ex", destination="", to_exchange=True)
    for binding in (link("", "p"), to_default):
        for call in (router.bind, router.unbind):
            with pytest.raises(BuiltIn):
                call(binding)


def test_declaring_again_says_what_differs() -> None:
    router = make("ex", type="topic")
    router.declare_exchange(ExchangeDefinition(name="ex", type="topic"))
    with pytest.raises(DefinitionConflict) as caught:
        router.declare_exchange(ExchangeDefinition(name="ex", type="direct", alternate="x"))
    assert caught.value.differences == (
        "type: existing 'topic', requested 'direct'", "alternate: existing None, requested 'x'",
    )  # fmt: skip
    assert router.exchange("ex").type == "topic"


def test_exchanges_bound_in_a_circle_end() -> None:
    router = make("e1", "e2", "e3", type="fanout")
    for binding in (link("e1", "e2"), link("e2", "e3"), link("e3", "e1"), link("e3", "e3")):
        router.bind(binding)
    for binding in (link("e2", "p"), link("e3", "p"), link("e3", "q")):
        router.bind(binding)
    assert [router.route(one, ("",)) for one in ("e1", "e2", "e3")] == [("p", "q")] * 3


def test_an_alternate_takes_what_no_binding_takes() -> None:
    router = Router()
    router.add_queue("p")
    router.add_queue("q")
    router.declare_exchange(ExchangeDefinition(name="first", alternate="second"))
    router.declare_exchange(ExchangeDefinition(name="second", alternate="third"))
    assert router.route("first", ("k",)) == ()  # `third` does not exist yet.
    router.declare_exchange(ExchangeDefinition(name="third", type="fanout", alternate="first"))
    assert router.route("first", ("k",)) == ()  # And leads back.
    router.bind(link("third", "q"))
    router.bind(link("first", "p", "k"))
    assert router.route("first", ("k",)) == ("p",)
    assert router.route("first", ("other",)) == ("q",)
    assert router.route("first", ("other", "k")) == ("p",)


def test_an_exchange_that_passed_it_on_does_not_ask_its_alternate() -> None:
    """As RabbitMQ: `outer` has a binding that matches, whatever becomes of it behind."""
    router = make("inner")
    router.declare_exchange(ExchangeDefinition(name="outer", type="fanout", alternate="amq.fanout"))
    router.bind(link("outer", "inner"))
    router.bind(link("amq.fanout", "p"))
    assert router.route("outer", ("k",)) == ()


def test_the_default_exchange_can_be_an_alternate() -> None:
    router = make("ex", alternate="")
    assert router.route("ex", ("p",)) == ("p",)


def test_headers_are_needed_where_a_headers_exchange_can_be_reached() -> None:
    router = make("e1", "e2", "e3")
    router.declare_exchange(ExchangeDefinition(name="e4", alternate="e1"))
    assert [router.needs_headers(one) for one in ("", "e1", "amq.headers")] == [False, False, True]
    router.bind(link("e1", "e2", "k"))
    router.bind(link("e2", "amq.headers", "k"))
    router.bind(link("amq.headers", "p", m=1))
    assert all(router.needs_headers(one) for one in ("e1", "e2", "e4"))
    assert not router.needs_headers("e3")
    assert router.route("e4", ("k",), {"m": 1}) == ("p",)
    assert router.route("e4", ("k",), {"m": 2}) == ()
    assert router.route("e4", ("k",)) == ()
    router.bind(link("e2", "amq.headers", "other"))
    router.unbind(link("e2", "amq.headers", "k"))
    assert router.needs_headers("e4")
    router.unbind(link("e2", "amq.headers", "other"))
    assert not router.needs_headers("e4")
    with pytest.raises(UnknownExchange):
        router.needs_headers("none")


def test_the_last_binding_takes_auto_delete_exchanges_with_it_and_so_on() -> None:
    router = make("e1", "e2", auto_delete=True)
    router.bind(link("e1", "e2"))
    router.bind(link("e2", "p"))
    router.bind(link("e2", "q"))
    router.remove_queue("q")
    assert [one.name for one in router.definitions()[0]] == ["e1", "e2"]
    assert router.definitions()[1] == (link("e1", "e2"), link("e2", "p"))
    router.remove_queue("p")
    assert router.definitions() == ((), ())
    router.remove_queue("p")


def test_an_auto_delete_exchange_that_never_had_a_binding_stays() -> None:
    router = make("ex", auto_delete=True)
    router.remove_queue("p")
    router.unbind(link("ex", "q"))
    assert router.has_exchange("ex")


def test_delete_if_unused_looks_at_bindings_from_it() -> None:
    router = make("ex", "other")
    router.bind(link("ex", "p"))
    router.bind(link("other", "ex"))
    with pytest.raises(InUse, match="bindings from it: 1"):
        router.check_delete("ex", if_unused=True)
    router.unbind(link("ex", "p"))
    router.check_delete("ex", if_unused=True)
    router.delete_exchange("ex")
    assert router.definitions()[1] == ()
    with pytest.raises(UnknownExchange):
        router.delete_exchange("ex")


def test_what_does_not_exist_is_named_with_what_is_near() -> None:
    router = make("orders", queues="")
    router.add_queue("invoices")
    with pytest.raises(UnknownExchange, match="did you mean 'orders'") as no_exchange:
        router.route("order", ("k",))
    assert (no_exchange.value.name, no_exchange.value.nearest) == ("order", "orders")
    with pytest.raises(UnknownQueue, match="did you mean 'invoices'"):
        router.bind(BindingDefinition(exchange="orders", destination="invoice"))
    with pytest.raises(UnknownExchange):
        router.bind(link("orders", "elsewhere"))
    with pytest.raises(UnknownExchange):
        router.bind(link("elsewhere", "i"))
    assert router.definitions()[1] == ()


def test_who_binds_to_an_exchange_as_to_a_queue_is_told_how() -> None:
    """Found: `declare it first`, of an exchange that was there."""
    router = make("orders", "behind")
    text = "no queue 'behind': an exchange has that name: bind to it with to_exchange"
    with pytest.raises(UnknownQueue, match=f"^{text}$") as caught:
        router.bind(BindingDefinition(exchange="orders", destination="behind"))
    assert (caught.value.flag, caught.value.nearest) == ("to_exchange", "")


def test_who_publishes_to_a_queue_as_to_an_exchange_is_told_of_the_default_one() -> None:
    """Found: `declare it first`, of a queue that was there."""
    router = make("orders", queues="")
    router.add_queue("orders.eu")
    for name, hint in (("jobs", "declare it first"), ("orders.eu", r"did you mean 'orders'\?")):
        with pytest.raises(
            UnknownExchange, match=f'{hint}; to publish to a queue, use exchange ""'
        ):
            router.check_publish(name)


def test_clients_may_not_publish_to_internal_exchanges() -> None:
    router = make("ex", internal=True)
    router.check_publish("")
    with pytest.raises(InternalExchange):
        router.check_publish("ex")
    with pytest.raises(UnknownExchange):
        router.check_publish("none")
    router.bind(link("amq.fanout", "ex"))
    router.bind(link("ex", "p", "k"))
    assert router.route("amq.fanout", ("k",)) == ("p",)


def test_a_route_is_found_once_and_again_after_any_change() -> None:
    router = make("e1", "e2")
    changes: list[Callable[[], object]] = [
        lambda: router.bind(link("e1", "p", "k")),
        lambda: router.declare_exchange(ExchangeDefinition(name="e3")),
        lambda: router.add_queue("z"),
        lambda: router.unbind(link("e1", "p", "k")),
        lambda: router.remove_queue("z"),
        lambda: router.delete_exchange("e3"),
    ]
    kept, asked = router._cache.young, ("e1", ("k",))
    for change in changes:
        before = router.route(*asked)
        assert router.route(*asked) is before is kept[asked]
        change()
        assert not kept
    router.route(*asked)
    router.unbind(link("e1", "p", "k"))
    router.remove_queue("z")
    router.add_queue("p")
    assert asked in kept


def test_what_does_not_depend_on_headers_only_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_ROUTES_MAX", 10)
    router = make()
    router.bind(link("amq.headers", "p", m=1))
    for number in range(100):
        router.route("amq.headers", (str(number),), {"m": 1})
    assert kept(router._cache) == 0
    for number in range(100):
        router.route("amq.topic", (str(number),))
        router.route("amq.topic", (str(number), "cc"))
    assert 0 < kept(router._cache) <= 10
