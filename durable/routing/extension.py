"""Very many exchanges and bindings, made beside a router a little at a time: it takes them in one turn.

An exchange that is there and gets further bindings is made anew, with all it has. Until the router has
taken it nobody's messages go by it; nothing may be declared or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from ..definitions import BindingDefinition, ExchangeDefinition
from ..turns import some_at_once
from .exchange import Exchange, destination_of

Bindings = dict[Hashable, BindingDefinition]
"""By identity."""


class Extension:
    """Of one router.

    Args:
        exchanges: those of the router.
        to: its bindings by where they lead to.
    """

    def __init__(
        self, exchanges: Mapping[str, Exchange], to: Mapping[tuple[str, bool], Bindings]
    ) -> None:
        self._exchanges, self._to = exchanges, to
        self.exchanges: dict[str, Exchange] = {}
        """New ones, and those that get bindings."""
        self.to: dict[tuple[str, bool], Bindings] = {}
        """All there will be to these."""
        self.queues: dict[str, None] = {}

    def declare(self, exchanges: Iterable[ExchangeDefinition]) -> None:
        """None of them is there."""
        for one in exchanges:
            self.exchanges[one.name] = Exchange(one)

    def copy(self, names: Iterable[str]) -> Iterator[None]:
        """Exchanges that will get bindings, so far as they are there. For `in_turns`."""
        for name in names:
            there = self._exchanges.get(name)
            if there is None:
                continue
            copy = self.exchanges[name] = Exchange(there.definition)
            for some in some_at_once(list(there.bindings.values())):
                for binding in some:
                    copy.bind(binding)
                yield

    def bind(self, bindings: Iterable[BindingDefinition]) -> None:
        """None of them is there, and both ends of each are, or will be. Their exchanges have been declared
        or copied."""
        for binding in bindings:
            self.exchanges[binding.exchange].bind(binding)
            to = destination_of(binding)
            there = self.to.get(to)
            if there is None:
                there = self.to[to] = dict(self._to.get(to, ()))
            there[binding.identity] = binding
