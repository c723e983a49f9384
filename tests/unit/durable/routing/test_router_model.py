"""Goal: the router as a whole, cache and all, says what two lists and recursion say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from durable.definitions import BindingDefinition, ExchangeDefinition, sorted_arguments
from durable.errors import DefinitionConflict, InUse, UnknownExchange, UnknownQueue
from durable.routing.router import Router

from .model import Model

OWN = ["e", "f", "g", "h"]
sources = st.sampled_from([*OWN, *OWN, "amq.topic", "amq.headers"])
anywhere = st.sampled_from([*OWN, *OWN, "", "amq.topic", "amq.headers", "missing"])
queues = st.sampled_from(["p", "q", "r"])
keys = st.sampled_from(["", "p", "a", "a.b", "a.b.c", "b"])
patterns = st.sampled_from(["", "a", "a.*", "#", "*.b", "a.#", "p"])
headers = st.dictionaries(st.sampled_from(["m", "x-n"]), st.sampled_from([1, True, None]))
arguments = st.tuples(
    headers, st.sampled_from([{}, {}, {"x-match": "any"}, {"x-match": "all-with-x"}])
)
bindings = st.builds(
    lambda exchange, to, key, said: BindingDefinition(
        exchange=exchange, destination=to[0], to_exchange=to[1], key=key,
        arguments=sorted_arguments({**said[0], **said[1]}),
    ),
    sources,
    st.one_of(st.tuples(queues, st.just(False)), st.tuples(sources, st.just(True))),
    patterns,
    arguments,
)  # fmt: skip


@settings(max_examples=100, stateful_step_count=40)
class Routers(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.router, self.model = Router(), Model()

    @rule(
        name=st.sampled_from(OWN),
        type_=st.sampled_from(["direct", "fanout", "topic", "topic", "headers"]),
        alternate=st.one_of(st.none(), anywhere),
        auto_delete=st.booleans(),
    )
    def declare(self, name: str, type_: str, alternate: str | None, auto_delete: bool) -> None:
        asked = ExchangeDefinition(
            name=name, type=type_, alternate=alternate, auto_delete=auto_delete
        )
        there = self.model.exchange(name)
        if there is not None and there != asked:
            with pytest.raises(DefinitionConflict):
                self.router.declare_exchange(asked)
            return
        assert self.router.check_exchange(asked) is (there is not None)
        self.router.declare_exchange(asked)
        if there is None:
            self.model.exchanges.append(asked)

    @rule(name=queues)
    def add_queue(self, name: str) -> None:
        self.router.add_queue(name)
        if name not in self.model.queues:
            self.model.queues.append(name)

    @rule(binding=bindings)
    def bind(self, binding: BindingDefinition) -> None:
        if self.model.exchange(binding.exchange) is None or (
            binding.to_exchange and self.model.exchange(binding.destination) is None
        ):
            with pytest.raises(UnknownExchange):
                self.router.bind(binding)
        elif not binding.to_exchange and binding.destination not in self.model.queues:
            with pytest.raises(UnknownQueue):
                self.router.bind(binding)
        else:
            there = self.model.find(binding)
            assert self.router.has_binding(binding) is (there is not None)
            self.router.bind(binding)
            if there is None:
                self.model.bindings.append(binding)

    @rule(binding=bindings)
    def unbind(self, binding: BindingDefinition) -> None:
        there = self.model.find(binding)
        if there is not None:
            self.model.bindings.remove(there)
            self.model.settle({binding.exchange})
        self.router.unbind(binding)

    @precondition(lambda self: self.model.bindings)
    @rule(place=st.integers(0, 100))
    def unbind_what_is_bound(self, place: int) -> None:
        self.unbind(self.model.bindings[place % len(self.model.bindings)])

    @rule(name=queues)
    def remove_queue(self, name: str) -> None:
        if name in self.model.queues:
            self.model.queues.remove(name)
            self.model.settle(set())
        self.router.remove_queue(name)

    @rule(name=st.sampled_from(OWN), if_unused=st.booleans())
    def delete(self, name: str, if_unused: bool) -> None:
        there = self.model.exchange(name)
        if there is None:
            for call in (self.router.check_delete, self.router.delete_exchange):
                with pytest.raises(UnknownExchange):
                    call(name)
        elif if_unused and any(one.exchange == name for one in self.model.bindings):
            with pytest.raises(InUse):
                self.router.check_delete(name, if_unused=True)
        else:
            self.model.exchanges.remove(there)
            self.model.settle(set())
            self.router.check_delete(name, if_unused=if_unused)
            self.router.delete_exchange(name)

    @rule(exchange=anywhere, key=keys, said=headers)
    def route(self, exchange: str, key: str, said: dict[str, Any]) -> None:
        self.ask(exchange, (key,), said)

    @rule(exchange=anywhere, several=st.lists(keys, max_size=3), said=headers)
    def route_several(self, exchange: str, several: list[str], said: dict[str, Any]) -> None:
        self.ask(exchange, tuple(several), said)

    def ask(self, exchange: str, several: tuple[str, ...], said: dict[str, Any]) -> None:
        if self.model.exchange(exchange) is None:
            with pytest.raises(UnknownExchange):
                self.router.route(exchange, several, said)
            return
        wanted = self.model.route(exchange, several, said)
        given_ = said if self.router.needs_headers(exchange) else None
        assert self.router.route(exchange, several, given_) == tuple(sorted(wanted))
        assert self.router.needs_headers(exchange) == self.model.reaches_headers(exchange)

    @invariant()
    def tells_all_there_is(self) -> None:
        exchanges, bound = self.router.definitions()
        assert [*exchanges] == [one for one in self.model.exchanges if one.name in OWN]
        assert sorted(map(repr, bound)) == sorted(map(repr, self.model.bindings))
        for queue in "pqr":
            to = [one for one in self.model.bindings if one.destination == queue]
            assert sorted(map(repr, self.router.bindings_to(queue))) == sorted(map(repr, to))


TestRouters = Routers.TestCase
