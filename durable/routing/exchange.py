"""One exchange: its bindings, and which of their destinations a message goes to.

Each exchange type has a small matcher; `Exchange` contains what all types share. Binding twice has the
effect of binding once. Bindings that differ in key or arguments are separate, even with the same destination.
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
    """The destination of a binding: a queue or stream, or an exchange."""

    name: str
    is_exchange: bool = False


class Matcher(Protocol):
    """Finds destinations by the rule of one exchange type. `remove` takes only bindings that were added."""

    def add(self, binding: BindingDefinition, destination: Destination) -> None: ...
    def remove(self, binding: BindingDefinition, destination: Destination) -> None: ...
    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        """Return the destinations of a message that has any of `keys`, each once."""


class Direct:
    """Matches a binding whose key equals the message's key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Fanout] = {}

    def add(self, binding: BindingDefinition, destination: Destination) -> None:
        self._by_key.setdefault(binding.key, Fanout()).add(binding, destination)

    def remove(self, binding: BindingDefinition, destination: Destination) -> None:
        group = self._by_key[binding.key]
        group.remove(binding, destination)
        if not group.counts:
            del self._by_key[binding.key]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        groups = [self._by_key[key].match(keys, headers) for key in keys if key in self._by_key]
        return groups[0] if len(groups) == 1 else set().union(*groups)


class Fanout:
    """Matches every binding."""

    def __init__(self) -> None:
        self.counts: dict[Destination, int] = {}
        """Number of bindings to each destination; never 0."""

    def add(self, binding: BindingDefinition, destination: Destination) -> None:
        self.counts[destination] = self.counts.get(destination, 0) + 1

    def remove(self, binding: BindingDefinition, destination: Destination) -> None:
        self.counts[destination] -= 1
        if not self.counts[destination]:
            del self.counts[destination]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return self.counts.keys()


class Topic:
    """Matches the key against patterns of words and wildcards."""

    def __init__(self) -> None:
        self._trie: TopicTrie[Destination] = TopicTrie()

    def add(self, binding: BindingDefinition, destination: Destination) -> None:
        self._trie.add(binding.key, destination)

    def remove(self, binding: BindingDefinition, destination: Destination) -> None:
        self._trie.remove(binding.key, destination)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        if len(keys) == 1:
            return self._trie.match(keys[0])
        return set().union(*(self._trie.match(key) for key in keys))


class Headers:
    """Matches the message's headers; keys are ignored."""

    def __init__(self) -> None:
        self._rules: dict[Hashable, tuple[HeadersRule, Destination]] = {}

    def add(self, binding: BindingDefinition, destination: Destination) -> None:
        self._rules[binding.identity] = HeadersRule(binding), destination

    def remove(self, binding: BindingDefinition, destination: Destination) -> None:
        del self._rules[binding.identity]

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return {destination for rule, destination in self._rules.values() if rule.matches(headers)}


class DefaultMatcher:
    """Matcher of the default exchange: the key is the name of a queue or stream, and each one is bound implicitly."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def add(self, binding: BindingDefinition, destination: Destination) -> None:
        raise AssertionError("nothing is bound to the default exchange")

    remove = add

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return {Destination(key) for key in keys if key in self._names}


MATCHERS: Mapping[str, type[Direct | Fanout | Topic | Headers]] = {
    DIRECT: Direct, FANOUT: Fanout, TOPIC: Topic, HEADERS: Headers,
}  # fmt: skip


class Exchange:
    """An exchange and the bindings whose source it is."""

    __slots__ = ("_matcher", "bindings", "definition", "exchange_counts", "match")

    def __init__(self, definition: ExchangeDefinition, matcher: Matcher | None = None) -> None:
        self.definition = definition
        self.bindings: dict[Hashable, BindingDefinition] = {}
        """Bindings by identity, in the order in which they were made."""
        self.exchange_counts: dict[str, int] = {}
        """Destination exchanges, with the number of bindings to each."""
        self._matcher = matcher or MATCHERS[definition.type]()
        self.match = self._matcher.match

    def bind(self, binding: BindingDefinition) -> bool:
        """Add a binding. Return False if it is there already."""
        identity = binding.identity
        if identity in self.bindings:
            return False
        self.bindings[identity] = binding
        self._matcher.add(binding, destination_of(binding))
        if binding.to_exchange:
            self.exchange_counts[binding.destination] = (
                self.exchange_counts.get(binding.destination, 0) + 1
            )
        return True

    def unbind(self, identity: Hashable) -> bool:
        """Remove a binding. Return False if there is none with this identity."""
        binding = self.bindings.pop(identity, None)
        if binding is None:
            return False
        self._matcher.remove(binding, destination_of(binding))
        if binding.to_exchange:
            self.exchange_counts[binding.destination] -= 1
            if not self.exchange_counts[binding.destination]:
                del self.exchange_counts[binding.destination]
        return True


def destination_of(binding: BindingDefinition) -> Destination:
    return Destination(binding.destination, binding.to_exchange)
