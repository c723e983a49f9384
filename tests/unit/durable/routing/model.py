"""A model of a router that is obviously right: lists that are searched one by one, and recursion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durable.definitions import BUILT_IN, BindingDefinition, ExchangeDefinition

from .test_headers import oracle as headers_match
from .test_topic import oracle as topic_matches
from .test_topic import words


def matches(type_: str, binding: BindingDefinition, key: str, headers: dict[str, Any]) -> bool:
    if type_ == "headers":
        arguments = dict(binding.arguments)
        return headers_match(arguments, arguments.pop("x-match", None), headers)
    if type_ == "topic":
        return topic_matches(words(binding.key), words(key))
    return type_ == "fanout" or binding.key == key


class Model:
    """Everything that exists, as lists; methods are named as Router's."""

    def __init__(self) -> None:
        self.exchanges = [ExchangeDefinition(name=""), *BUILT_IN.values()]
        self.bindings: list[BindingDefinition] = []
        self.queues: list[str] = []

    def exchange(self, name: str) -> ExchangeDefinition | None:
        return next((one for one in self.exchanges if one.name == name), None)

    def find(self, binding: BindingDefinition) -> BindingDefinition | None:
        """Return an equal binding. Compared by repr, which distinguishes 1 from True; == does not."""
        return next((one for one in self.bindings if repr(one) == repr(binding)), None)

    def route(
        self, name: str, keys: Sequence[str], headers: dict[str, Any], seen: set[str] | None = None
    ) -> set[str]:
        seen = set() if seen is None else seen
        exchange = self.exchange(name)
        if exchange is None or name in seen:
            return set()
        seen.add(name)
        if not name:
            return set(keys) & set(self.queues)
        found: set[str] = set()
        matching = [
            one
            for one in self.bindings
            if one.exchange == name
            and any(matches(exchange.type, one, key, headers) for key in keys)
        ]
        for one in matching:
            if one.to_exchange:
                found |= self.route(one.destination, keys, headers, seen)
            else:
                found.add(one.destination)
        if not matching and exchange.alternate is not None:
            found |= self.route(exchange.alternate, keys, headers, seen)
        return found

    def reaches_headers(self, name: str, seen: set[str] | None = None) -> bool:
        seen = set() if seen is None else seen
        exchange = self.exchange(name)
        if exchange is None or name in seen:
            return False
        seen.add(name)
        onward = [
            one.destination for one in self.bindings if one.exchange == name and one.to_exchange
        ]
        if exchange.alternate is not None:
            onward.append(exchange.alternate)
        return exchange.type == "headers" or any(self.reaches_headers(one, seen) for one in onward)

    def settle(self, lost: set[str]) -> None:
        """Remove dangling bindings, and auto-delete exchanges that lost their last binding, until nothing changes.

        `lost` are the exchanges that have lost a binding.
        """
        while True:
            dangling = [
                one
                for one in self.bindings
                if not self.exchange(one.exchange)
                or not (
                    self.exchange(one.destination)
                    if one.to_exchange
                    else one.destination in self.queues
                )
            ]
            lost |= {one.exchange for one in dangling}
            self.bindings = [one for one in self.bindings if one not in dangling]
            bound = {one.exchange for one in self.bindings}
            empty = [
                one
                for one in self.exchanges
                if one.auto_delete and one.name in lost and one.name not in bound
            ]
            self.exchanges = [one for one in self.exchanges if one not in empty]
            if not dangling and not empty:
                return
