"""All exchanges of a vhost: from an exchange and a key to queues and streams.

    declare, bind, ... ──> exchanges ──> bindings ──> queues and streams, by name
                              │ ^            │
                    alternate └─┴── exchange-to-exchange, each exchange once per message

If no binding of an exchange matches, the message goes to its alternate exchange, if that exists. A match by
an exchange-to-exchange binding counts, whether or not the message then reaches a queue. Both are as in
RabbitMQ. Routing always ends, because a message visits each exchange at most once.

Definitions must have been checked (`check()`) by the caller. A call that raises has changed nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

from ..definitions import (
    BUILT_IN,
    DEFAULT_EXCHANGE,
    HEADERS,
    BindingDefinition,
    ExchangeDefinition,
    check_bindable,
    check_built_in,
    check_same,
)
from ..errors import (
    BuiltIn,
    InternalExchange,
    InUse,
    UnknownExchange,
    UnknownQueue,
)
from .cache import Cache
from .exchange import DefaultMatcher, Destination, Exchange, destination_of
from .extension import Extension

CACHED_ROUTES_MAX = 10_000
CACHED_QUEUES_MAX = 100
"""A route counts as one cache entry more per CACHED_QUEUES_MAX queues in it, which bounds the cache's memory, too."""

NO_HEADERS: Mapping[str, Any] = {}
Names = tuple[str, ...]


class Router:
    """Exchanges, bindings and the names of queues and streams of one vhost."""

    def __init__(self) -> None:
        self._queues: dict[str, None] = {}
        default = ExchangeDefinition(name=DEFAULT_EXCHANGE)
        self._exchanges = {DEFAULT_EXCHANGE: Exchange(default, DefaultMatcher(self._queues))}
        self._exchanges.update({name: Exchange(one) for name, one in BUILT_IN.items()})
        self._by_destination: dict[tuple[str, bool], dict[Hashable, BindingDefinition]] = {}
        """Bindings by destination, then by identity."""
        self._cache: Cache[tuple[str, Names], Names] = Cache(
            CACHED_ROUTES_MAX, lambda queues: 1 + len(queues) // CACHED_QUEUES_MAX
        )
        self._cached = self._cache.young.get
        self._headers_needed: dict[str, bool] = {}

    # Queries

    def exchange(self, name: str) -> ExchangeDefinition:
        """Return the definition. Raises UnknownExchange."""
        return self._exchange(name).definition

    def has_exchange(self, name: str) -> bool:
        return name in self._exchanges

    def check_publish(self, exchange: str) -> None:
        """Check that clients may publish to this exchange. Raises UnknownExchange, InternalExchange."""
        existing = self._exchanges.get(exchange)
        if existing is None:
            # Often this is a queue's name. The error does not say whether it exists, which not every client may know.
            raise UnknownExchange(exchange, self._exchanges, beside=UnknownExchange.FOR_QUEUE)
        if existing.definition.internal:
            raise InternalExchange(exchange)

    def definitions(self) -> tuple[tuple[ExchangeDefinition, ...], tuple[BindingDefinition, ...]]:
        """Return all exchanges except the built-in ones, and all bindings, in an order in which to declare them."""
        exchanges = self._exchanges.values()
        return (
            tuple(
                one.definition
                for name, one in self._exchanges.items()
                if name != DEFAULT_EXCHANGE and name not in BUILT_IN
            ),
            tuple(binding for one in exchanges for binding in one.bindings.values()),
        )

    def bindings_to(self, name: str, *, is_exchange: bool = False) -> tuple[BindingDefinition, ...]:
        """Return the bindings whose destination is this queue, stream or exchange."""
        return tuple(self._by_destination.get(Destination(name, is_exchange), {}).values())

    # Changes

    def declare_exchange(self, definition: ExchangeDefinition) -> None:
        """Add an exchange, unless there is an equal one.

        Raises:
            DefinitionConflict: there is one of that name with other settings.
            BuiltIn: the name is that of a built-in exchange.
        """
        if not self.check_exchange(definition):
            self._exchanges[definition.name] = Exchange(definition)
            self._clear_caches()

    def check_exchange(self, definition: ExchangeDefinition) -> bool:
        """Return whether it exists already. Raises what `declare_exchange` would raise."""
        check_built_in(definition)
        existing = self._exchanges.get(definition.name)
        if existing is not None:
            check_same(existing.definition, definition)
        return existing is not None

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange, with all bindings from it and to it.

        Raises:
            UnknownExchange: it does not exist.
            BuiltIn: it is built in, so it cannot be deleted.
        """
        self.check_delete(name)
        self._remove([self._exchange(name)], [])

    def check_delete(self, name: str, *, if_unused: bool = False) -> None:
        """Raises what `delete_exchange` would raise, and InUse if `if_unused` and it has bindings from it."""
        exchange = self._exchange(name)
        if name == DEFAULT_EXCHANGE or name in BUILT_IN:
            raise BuiltIn(name, "it cannot be deleted")
        if if_unused and exchange.bindings:
            how = f"bindings from it: {len(exchange.bindings)}"
            raise InUse("exchange", name, f"{how}; unbind them first", "if_unused")

    def check_bind(self, binding: BindingDefinition) -> None:
        """Raises what `bind` would raise."""
        check_bindable(binding)
        self._exchange(binding.exchange)
        destination = destination_of(binding)
        if destination.is_exchange:
            self._exchange(destination.name)
        elif destination.name not in self._queues:
            raise UnknownQueue.as_destination(destination.name, self._queues, self._exchanges)

    def bind(self, binding: BindingDefinition) -> None:
        """Add a binding, unless it exists.

        Raises:
            UnknownExchange, UnknownQueue: one end does not exist.
            BuiltIn: one end is the default exchange.
        """
        self.check_bind(binding)
        destination = destination_of(binding)
        if self._exchange(binding.exchange).bind(binding):
            self._by_destination.setdefault(destination, {})[binding.identity] = binding
            self._clear_caches()

    def has_binding(self, binding: BindingDefinition) -> bool:
        """Return whether the binding exists. Raises BuiltIn if one end is the default exchange."""
        check_bindable(binding)
        source = self._exchanges.get(binding.exchange)
        return source is not None and binding.identity in source.bindings

    def unbind(self, binding: BindingDefinition) -> None:
        """Remove a binding. If it does not exist nothing happens, because a client may repeat the call.

        Raises:
            BuiltIn: one end is the default exchange.
        """
        check_bindable(binding)
        self._remove([], [(binding.identity, binding)])

    def add_queue(self, name: str) -> None:
        """Add the name of a queue or stream that now exists."""
        if name not in self._queues:
            self._queues[name] = None
            self._clear_caches()

    def remove_queue(self, name: str) -> None:
        """Remove the name of a queue or stream, and the bindings to it. Nothing happens if it does not exist."""
        if name in self._queues:
            del self._queues[name]
            self._clear_caches()
            self._remove([], self._identified_bindings(Destination(name)))

    def extension(self) -> Extension:
        """Return an empty extension, to prepare a large import beside this router: see extension.py."""
        return Extension(self._exchanges, self._by_destination)

    def extend(self, extension: Extension) -> None:
        """Apply an extension: its exchanges, bindings and queues exist from now on."""
        self._queues.update(extension.queues)
        self._exchanges.update(extension.exchanges)
        self._by_destination.update(extension.by_destination)
        self._clear_caches()

    # Routing

    def needs_headers(self, exchange: str) -> bool:
        """Return whether the route of a message published to `exchange` may depend on its headers.

        Raises:
            UnknownExchange: it does not exist.
        """
        needs = self._headers_needed.get(exchange)
        if needs is None:
            needs = self._headers_needed[exchange] = self._reaches_headers(self._exchange(exchange))
        return needs

    def route(
        self, exchange: str, keys: Names, headers: Mapping[str, Any] | None = None
    ) -> Names:  # fmt: skip
        """Return the queues and streams, sorted, to which a message goes that is published to `exchange`.

        Args:
            keys: the message's routing key, CC and BCC. It goes wherever any of them leads, once; an alternate
                exchange is used if none of them matches.
            headers: used only if `needs_headers(exchange)`; None means no headers.
        Raises:
            UnknownExchange: it does not exist.
        """
        queues = self._cached((exchange, keys))
        return self._route(exchange, keys, headers) if queues is None else queues

    def _route(self, exchange: str, keys: Names, headers: Mapping[str, Any] | None) -> Names:
        if self.needs_headers(exchange):
            return self._find(exchange, keys, headers or NO_HEADERS)
        queues = self._cache.get((exchange, keys))
        if queues is None:
            queues = self._find(exchange, keys, NO_HEADERS)
            self._cache.put((exchange, keys), queues)
        return queues

    def _find(self, exchange: str, keys: Names, headers: Mapping[str, Any]) -> Names:
        queues: set[str] = set()
        pending = [self._exchange(exchange)]
        visited = {exchange}
        while pending:
            one = pending.pop()
            found = one.match(keys, headers)
            if not found and one.definition.alternate is not None:
                found = (Destination(one.definition.alternate, True),)
            for name, is_exchange in found:
                if not is_exchange:
                    queues.add(name)
                elif name not in visited and name in self._exchanges:
                    visited.add(name)
                    pending.append(self._exchanges[name])
        return tuple(sorted(queues))

    def _reaches_headers(self, exchange: Exchange) -> bool:
        pending = [exchange]
        visited = {exchange.definition.name}
        while pending:
            one = pending.pop()
            if one.definition.type == HEADERS:
                return True
            for name in (*one.exchange_counts, one.definition.alternate):
                if name is not None and name not in visited and name in self._exchanges:
                    visited.add(name)
                    pending.append(self._exchanges[name])
        return False

    # Inside

    def _exchange(self, name: str) -> Exchange:
        try:
            return self._exchanges[name]
        except KeyError:
            raise UnknownExchange(name, self._exchanges) from None

    def _clear_caches(self) -> None:
        """Clear the caches, because routes may have changed."""
        self._cache.clear()
        self._headers_needed.clear()

    def _identified_bindings(
        self, destination: Destination
    ) -> list[tuple[Hashable, BindingDefinition]]:
        """Return the bindings to this destination as (identity, binding)."""
        return list(self._by_destination.get(destination, {}).items())

    def _remove(
        self, exchanges: list[Exchange], bindings: list[tuple[Hashable, BindingDefinition]]
    ) -> None:
        """Remove exchanges and bindings, then auto-delete exchanges that lost their last binding, and so on.

        Bindings come with their identities, because computing an identity takes longer than the rest of a removal.
        """
        waiting, doomed = deque(bindings), deque(exchanges)
        changed = bool(exchanges)
        while doomed or waiting:
            if doomed:
                exchange = doomed.popleft()
                name = exchange.definition.name
                del self._exchanges[name]
                for identity, binding in exchange.bindings.items():
                    self._forget_binding(identity, binding)
                waiting += self._identified_bindings(Destination(name, True))
                continue
            identity, binding = waiting.popleft()
            source = self._exchanges.get(binding.exchange)
            if source is None or not source.unbind(identity):
                continue
            self._forget_binding(identity, binding)
            changed = True
            if source.definition.auto_delete and not source.bindings:
                doomed.append(source)
        if changed:
            self._clear_caches()

    def _forget_binding(self, identity: Hashable, binding: BindingDefinition) -> None:
        destination = (
            binding.destination,
            binding.to_exchange,
        )  # Equals a Destination; faster to make.
        bindings = self._by_destination[destination]
        del bindings[identity]
        if not bindings:
            del self._by_destination[destination]
