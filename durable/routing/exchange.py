"""One exchange: its bindings, and which of their destinations a message goes to.

Each type of exchange is a small matcher; what all have in common is in `Exchange`. Binding twice is
binding once. Two bindings that differ in key or arguments are two, also when they lead to one place.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..definitions import (
    DIRECT,
    FANOUT,
    HEADERS,
    TOPIC,
    BindingDefinition,
    ExchangeDefinition,
)
from .headers import HeadersRule
from .topic import TopicTrie


class Destination(NamedTuple):
    """A queue or stream, or an exchange."""

    name: str
    is_exchange: bool = False


class Matcher(Protocol):
    """What an exchange's type makes of its bindings. `remove` only what was added."""

    def add(self, binding: BindingDefinition, to: Destination) -> None: ...
    def remove(self, binding: BindingDefinition, to: Destination) -> None: ...
    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        """Where a message with any of `keys` goes, each destination once."""


class Direct:
    """The key, letter by letter."""

    def __init__(self) -> None:
        self._by_key: dict[str, Fanout] = {}

    def add(self, binding: BindingDefinition, to: Destination) -> None:
        self._by_key.setdefault(binding.key, Fanout()).add(binding, to)

    def remove(self, binding: BindingDefinition, to: Destination) -> None:
        group = self._by_key[binding.key]
        group.remove(binding, to)
        if not group.counts:
            del self._by_key[binding.key]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        groups = [self._by_key[key].match(keys, headers) for key in keys if key in self._by_key]
        return groups[0] if len(groups) == 1 else set().union(*groups)


class Fanout:
    """Everything goes everywhere."""

    def __init__(self) -> None:
        self.counts: dict[Destination, int] = {}
        """How many bindings lead to each; none is 0."""

    def add(self, binding: BindingDefinition, to: Destination) -> None:
        self.counts[to] = self.counts.get(to, 0) + 1

    def remove(self, binding: BindingDefinition, to: Destination) -> None:
        self.counts[to] -= 1
        if not self.counts[to]:
            del self.counts[to]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return self.counts.keys()


class Topic:
    """Words and wildcards."""

    def __init__(self) -> None:
        self._trie: TopicTrie[Destination] = TopicTrie()

    def add(self, binding: BindingDefinition, to: Destination) -> None:
        self._trie.add(binding.key, to)

    def remove(self, binding: BindingDefinition, to: Destination) -> None:
        self._trie.remove(binding.key, to)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        if len(keys) == 1:
            return self._trie.match(keys[0])
        return set().union(*(self._trie.match(key) for key in keys))


class Headers:
    """What the message says about itself; keys mean nothing."""

    def __init__(self) -> None:
        self._rules: dict[Hashable, tuple[HeadersRule, Destination]] = {}

    def add(self, binding: BindingDefinition, to: Destination) -> None:
        self._rules[binding.identity] = HeadersRule(binding), to

    def remove(self, binding: BindingDefinition, to: Destination) -> None:
        del self._rules[binding.identity]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return {to for rule, to in self._rules.values() if rule.matches(headers)}


class Queues:
    """The default exchange: the key is the queue. Its bindings are the queues there are."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def add(self, binding: BindingDefinition, to: Destination) -> None:
        raise AssertionError("nothing is bound to the default exchange")

    remove = add

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return {Destination(key) for key in keys if key in self._names}


MATCHERS: Mapping[str, type[Direct | Fanout | Topic | Headers]] = {
    DIRECT: Direct, FANOUT: Fanout, TOPIC: Topic, HEADERS: Headers,
}  # fmt: skip


class Exchange:
    """An exchange and the bindings from it."""

    __slots__ = ("_matcher", "bindings", "definition", "match", "onward")

    def __init__(self, definition: ExchangeDefinition, matcher: Matcher | None = None) -> None:
        self.definition = definition
        self.bindings: dict[Hashable, BindingDefinition] = {}
        """By identity, in the order they were made."""
        self.onward: dict[str, int] = {}
        """Exchanges that bindings lead to, and how many do."""
        self._matcher = matcher or MATCHERS[definition.type]()
        self.match = self._matcher.match

    def bind(self, binding: BindingDefinition) -> bool:
        """Whether it was not there yet."""
        identity = binding.identity
        if identity in self.bindings:
            return False
        self.bindings[identity] = binding
        self._matcher.add(binding, destination_of(binding))
        if binding.to_exchange:
            self.onward[binding.destination] = self.onward.get(binding.destination, 0) + 1
        return True

    def unbind(self, identity: Hashable) -> bool:
        """Whether it was there."""
        binding = self.bindings.pop(identity, None)
        if binding is None:
            return False
        self._matcher.remove(binding, destination_of(binding))
        if binding.to_exchange:
            self.onward[binding.destination] -= 1
            if not self.onward[binding.destination]:
                del self.onward[binding.destination]
        return True


def destination_of(binding: BindingDefinition) -> Destination:
    return Destination(binding.destination, binding.to_exchange)
