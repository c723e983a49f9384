"""A large import of exchanges and bindings, prepared beside a router in small steps and applied in one turn.

An existing exchange that gets new bindings is replaced by a copy that has the old and the new ones. No message
is routed by the extension until `Router.extend` applies it; until then nothing may be declared or deleted,
because the copies would not have the change.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from ..definitions import BindingDefinition, ExchangeDefinition
from ..turns import some_at_once
from .exchange import Exchange, destination_of

Bindings = dict[Hashable, BindingDefinition]
"""Bindings by identity."""


class Extension:
    """Exchanges and bindings to be added to one router.

    Args:
        exchanges: the router's exchanges.
        by_destination: the router's bindings.
    """

    def __init__(
        self, exchanges: Mapping[str, Exchange], by_destination: Mapping[tuple[str, bool], Bindings]
    ) -> None:
        self._exchanges, self._by_destination = exchanges, by_destination
        self.exchanges: dict[str, Exchange] = {}
        """New exchanges, and copies of existing ones that get bindings."""
        self.by_destination: dict[tuple[str, bool], Bindings] = {}
        """All bindings, old and new, of each destination that gets a binding."""
        self.queues: dict[str, None] = {}

    def declare(self, exchanges: Iterable[ExchangeDefinition]) -> None:
        """Add new exchanges; none of them may exist yet."""
        for one in exchanges:
            self.exchanges[one.name] = Exchange(one)

    def copy(self, names: Iterable[str]) -> Iterator[None]:
        """Copy the existing ones of these exchanges, so that `bind` can add to them. A generator, for `run_steps`."""
        for name in names:
            existing = self._exchanges.get(name)
            if existing is None:
                continue
            copy = self.exchanges[name] = Exchange(existing.definition)
            for some in some_at_once(list(existing.bindings.values())):
                for binding in some:
                    copy.bind(binding)
                yield

    def bind(self, bindings: Iterable[BindingDefinition]) -> None:
        """Add new bindings. None of them may exist yet, both ends of each must exist or be part of this
        extension, and their source exchanges must have been declared or copied here."""
        for binding in bindings:
            self.exchanges[binding.exchange].bind(binding)
            destination = destination_of(binding)
            group = self.by_destination.get(destination)
            if group is None:
                group = self.by_destination[destination] = dict(
                    self._by_destination.get(destination, ())
                )
            group[binding.identity] = binding
