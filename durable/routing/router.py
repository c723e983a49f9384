"""All exchanges of a vhost: from an exchange and a key to queues.

    declare, bind, ... ──> exchanges ──> bindings ──> queues and streams, by name
                              │ ^            │
                    alternate └─┴── exchange-to-exchange, each exchange once per message

An exchange none of whose bindings match hands the message to its alternate, if that exists; whether
what comes after an exchange-to-exchange binding finds a queue does not matter to the exchange before
it. So does RabbitMQ. Routing ends in any case: a message visits each exchange at most once.

Definitions come in checked (`check()`). A call that raises has changed nothing.
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
    differences,
)
from ..errors import (
    BuiltIn,
    DefinitionConflict,
    InternalExchange,
    InUse,
    UnknownExchange,
    UnknownQueue,
)
from .cache import Cache
from .exchange import Destination, Exchange, Queues, destination_of
from .extension import Extension

CACHED_ROUTES_MAX = 10_000
CACHED_QUEUES_MAX = 100
"""How many queues of a route are worth one more route in the cache: it is bounded in memory too."""

NO_HEADERS: Mapping[str, Any] = {}
Names = tuple[str, ...]


class Router:
    """Exchanges, bindings and the names of queues and streams of one vhost."""

    def __init__(self) -> None:
        self._queues: dict[str, None] = {}
        default = ExchangeDefinition(name=DEFAULT_EXCHANGE)
        self._exchanges = {DEFAULT_EXCHANGE: Exchange(default, Queues(self._queues))}
        self._exchanges.update({name: Exchange(one) for name, one in BUILT_IN.items()})
        self._to: dict[tuple[str, bool], dict[Hashable, BindingDefinition]] = {}
        """By destination."""
        self._cache: Cache[tuple[str, Names], Names] = Cache(
            CACHED_ROUTES_MAX, lambda queues: 1 + len(queues) // CACHED_QUEUES_MAX
        )
        self._cached = self._cache.young.get
        self._needs: dict[str, bool] = {}

    # What there is

    def exchange(self, name: str) -> ExchangeDefinition:
        """Raises UnknownExchange."""
        return self._exchange(name).definition

    def has_exchange(self, name: str) -> bool:
        return name in self._exchanges

    def check_publish(self, exchange: str) -> None:
        """Whether clients may publish to it. Raises UnknownExchange, InternalExchange."""
        there = self._exchanges.get(exchange)
        if there is None:
            # A queue's name, as often as not; whether one has it is not everybody's business.
            raise UnknownExchange(exchange, self._exchanges, beside=UnknownExchange.FOR_QUEUE)
        if there.definition.internal:
            raise InternalExchange(exchange)

    def definitions(self) -> tuple[tuple[ExchangeDefinition, ...], tuple[BindingDefinition, ...]]:
        """Exchanges without the built-in ones, and all bindings, as they have to be declared."""
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
        """Bindings that lead to a queue, stream or exchange."""
        return tuple(self._to.get(Destination(name, is_exchange), {}).values())

    # Changes

    def declare_exchange(self, definition: ExchangeDefinition) -> None:
        """
        Raises:
            DefinitionConflict: there is one of that name with other settings.
            BuiltIn: that one is built in.
        """
        if not self.check_exchange(definition):
            self._exchanges[definition.name] = Exchange(definition)
            self._changed()

    def check_exchange(self, definition: ExchangeDefinition) -> bool:
        """Whether it is there already. Raises what `declare_exchange` would."""
        check_built_in(definition)
        there = self._exchanges.get(definition.name)
        if there is not None and there.definition != definition:
            differs = differences(there.definition, definition)
            raise DefinitionConflict(definition.kind, definition.name, differs)
        return there is not None

    def delete_exchange(self, name: str) -> None:
        """Delete it with all bindings from and to it.

        Raises:
            UnknownExchange: there is none.
            BuiltIn: it cannot be deleted.
        """
        self.check_delete(name)
        self._remove([self._exchange(name)], [])

    def check_delete(self, name: str, *, if_unused: bool = False) -> None:
        """Raises what `delete_exchange` would; InUse: `if_unused`, and there are bindings from it."""
        exchange = self._exchange(name)
        if name == DEFAULT_EXCHANGE or name in BUILT_IN:
            raise BuiltIn(name, "it cannot be deleted")
        if if_unused and exchange.bindings:
            how = f"bindings from it: {len(exchange.bindings)}"
            how += "; unbind them first, or delete it without if_unused"
            raise InUse("exchange", name, how)

    def check_bind(self, binding: BindingDefinition) -> None:
        """Raises what `bind` would."""
        check_bindable(binding)
        self._exchange(binding.exchange)
        to = destination_of(binding)
        if to.is_exchange:
            self._exchange(to.name)
        elif to.name not in self._queues:
            raise UnknownQueue(to.name, self._queues)

    def bind(self, binding: BindingDefinition) -> None:
        """
        Raises:
            UnknownExchange, UnknownQueue: one end does not exist.
            BuiltIn: one end is the default exchange.
        """
        self.check_bind(binding)
        to = destination_of(binding)
        if self._exchange(binding.exchange).bind(binding):
            self._to.setdefault(to, {})[binding.identity] = binding
            self._changed()

    def has_binding(self, binding: BindingDefinition) -> bool:
        """Raises BuiltIn: one end is the default exchange."""
        check_bindable(binding)
        source = self._exchanges.get(binding.exchange)
        return source is not None and binding.identity in source.bindings

    def unbind(self, binding: BindingDefinition) -> None:
        """Take out a binding. When it is not there nothing happens: a client may ask twice.

        Raises:
            BuiltIn: one end is the default exchange.
        """
        check_bindable(binding)
        self._remove([], [(binding.identity, binding)])

    def add_queue(self, name: str) -> None:
        """A queue or stream exists."""
        if name not in self._queues:
            self._queues[name] = None
            self._changed()

    def remove_queue(self, name: str) -> None:
        """It is gone, with the bindings to it. Nothing happens if there is none."""
        if name in self._queues:
            del self._queues[name]
            self._changed()
            self._remove([], self._identified(Destination(name)))

    def extension(self) -> Extension:
        """For very many exchanges and bindings: see extension.py."""
        return Extension(self._exchanges, self._to)

    def extend(self, extension: Extension) -> None:
        """All of it is there from now on."""
        self._queues.update(extension.queues)
        self._exchanges.update(extension.exchanges)
        self._to.update(extension.to)
        self._changed()

    # Routing

    def needs_headers(self, exchange: str) -> bool:
        """Whether headers may decide where a message goes that is published to `exchange`.

        Raises:
            UnknownExchange: there is none.
        """
        needs = self._needs.get(exchange)
        if needs is None:
            needs = self._needs[exchange] = self._reaches_headers(self._exchange(exchange))
        return needs

    def route(
        self, exchange: str, keys: Names, headers: Mapping[str, Any] | None = None
    ) -> Names:  # fmt: skip
        """Queues and streams, sorted, that a message goes to which is published to `exchange`.

        Args:
            keys: its own, CC and BCC. It goes wherever one of them leads, once; an alternate is asked
                when none leads anywhere.
            headers: looked at only if `needs_headers(exchange)`; None is none.
        Raises:
            UnknownExchange: there is none.
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
        ahead = [self._exchange(exchange)]
        seen = {exchange}
        while ahead:
            one = ahead.pop()
            found = one.match(keys, headers)
            if not found and one.definition.alternate is not None:
                found = (Destination(one.definition.alternate, True),)
            for name, is_exchange in found:
                if not is_exchange:
                    queues.add(name)
                elif name not in seen and name in self._exchanges:
                    seen.add(name)
                    ahead.append(self._exchanges[name])
        return tuple(sorted(queues))

    def _reaches_headers(self, exchange: Exchange) -> bool:
        ahead = [exchange]
        seen = {exchange.definition.name}
        while ahead:
            one = ahead.pop()
            if one.definition.type == HEADERS:
                return True
            for name in (*one.onward, one.definition.alternate):
                if name is not None and name not in seen and name in self._exchanges:
                    seen.add(name)
                    ahead.append(self._exchanges[name])
        return False

    # Inside

    def _exchange(self, name: str) -> Exchange:
        try:
            return self._exchanges[name]
        except KeyError:
            raise UnknownExchange(name, self._exchanges) from None

    def _changed(self) -> None:
        """Messages may go elsewhere from now on."""
        self._cache.clear()
        self._needs.clear()

    def _identified(self, to: Destination) -> list[tuple[Hashable, BindingDefinition]]:
        """Bindings that lead there, each after its identity."""
        return list(self._to.get(to, {}).items())

    def _remove(
        self, exchanges: list[Exchange], bindings: list[tuple[Hashable, BindingDefinition]]
    ) -> None:
        """Remove these, and exchanges that were to go with their last binding, and so on.

        An identity takes longer to be made than all the rest of a binding to be removed.
        """
        waiting, doomed = deque(bindings), deque(exchanges)
        changed = bool(exchanges)
        while doomed or waiting:
            if doomed:
                exchange = doomed.popleft()
                name = exchange.definition.name
                del self._exchanges[name]
                for identity, binding in exchange.bindings.items():
                    self._forget(identity, binding)
                waiting += self._identified(Destination(name, True))
                continue
            identity, binding = waiting.popleft()
            source = self._exchanges.get(binding.exchange)
            if source is None or not source.unbind(identity):
                continue
            self._forget(identity, binding)
            changed = True
            if source.definition.auto_delete and not source.bindings:
                doomed.append(source)
        if changed:
            self._changed()

    def _forget(self, identity: Hashable, binding: BindingDefinition) -> None:
        to = binding.destination, binding.to_exchange  # As Destination, which is slower to make.
        there = self._to[to]
        del there[identity]
        if not there:
            del self._to[to]
