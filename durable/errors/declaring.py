"""Why something cannot be declared, bound, deleted or used by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .root import DurableError, nearest, shown


class InvalidDefinition(DurableError, ValueError):
    """`field` of a `kind` (queue, exchange, ...) is `value`; the text says what is `allowed`.

    `where` is the entry of an import, as `queues[3]`.
    """

    def __init__(self, kind: str, field: str, value: object, allowed: str, where: str = "") -> None:
        super().__init__(f"{where or kind}: {field} is {shown(value)}: want {allowed}")
        self.kind, self.field, self.value, self.allowed = kind, field, value, allowed
        self.where = where

    def at(self, where: str) -> InvalidDefinition:
        return InvalidDefinition(self.kind, self.field, self.value, self.allowed, where)


class DefinitionConflict(DurableError):
    """The `kind` called `name` exists; `differences` tell what was asked otherwise."""

    def __init__(self, kind: str, name: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"{kind} {name!r} exists with other settings ({'; '.join(differences)}): "
            "declare it as it is, or delete it first"
        )
        self.kind, self.name, self.differences = kind, name, tuple(differences)


class Unknown(DurableError):
    """Abstract: there is no `kind` called `name`; `nearest` exists, or is empty.

    Args:
        hint: what to do, where nothing of a like name is known.
        beside: what to do otherwise, whatever is known.
    """

    kind = ""

    def __init__(
        self, name: str, known: Iterable[str] = (), hint: str = "declare it first", beside: str = "",
    ) -> None:  # fmt: skip
        self.name, self.nearest = name, nearest(name, known)
        if self.nearest:
            hint = f"did you mean {self.nearest!r}?"
        super().__init__(f"no {self.kind} {shown(name)}: {hint}{beside}")


class UnknownExchange(Unknown):
    """There is no exchange called `name`."""

    kind = "exchange"
    FOR_QUEUE = '; to publish to a queue, exchange "" and its name as the key'


class UnknownQueue(Unknown):
    """There is no queue called `name`."""

    kind = "queue"
    IS_STREAM = "a stream has that name, which is read and deleted as one"


class UnknownStream(Unknown):
    """There is no stream called `name`."""

    kind = "stream"
    IS_QUEUE = "a queue has that name, which is consumed and deleted as one"


class UnknownVhost(Unknown):
    """There is no vhost called `name`."""

    kind = "vhost"


class VhostUnavailable(DurableError):
    """The vhost `name` is there and could not be opened when the broker started."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"vhost {name!r} could not be opened: the broker's log says why; mend that, then "
            "restart the broker"
        )
        self.name = name


class BuiltIn(DurableError):
    """The exchange `name` is built in: `what` cannot be done to it."""

    def __init__(self, name: str, what: str) -> None:
        called = f"exchange {name!r}" if name else "the default exchange"
        super().__init__(f"{called} is built in: {what}; declare an exchange of your own")
        self.name, self.what = name, what


class ExclusiveQueue(DurableError):
    """`queue` belongs to another connection, and ends with that."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is exclusive to another connection: use another name")
        self.queue = queue


class TooManyQueues(DurableError):
    """The vhost has `limit` queues and streams, its `queues_max`."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"there are {limit} queues and streams already: delete some, or raise queues_max"
        )
        self.limit = limit


class TooManyCursors(DurableError):
    """`stream` keeps `limit` cursors, which is as many as it may."""

    def __init__(self, stream: str, limit: int) -> None:
        super().__init__(
            f"stream {stream!r} has {limit} cursors already: delete one, read under a name it knows, "
            "or without"
        )
        self.stream, self.limit = stream, limit


class TooManyPatterns(DurableError):
    """All streams together would have `patterns` different ones, and this broker captures `limit`."""

    def __init__(self, patterns: int, limit: int) -> None:
        super().__init__(
            f"there would be {patterns} different patterns to capture, and the broker's node may have "
            f"{limit} subscriptions: delete streams, use wider patterns, or raise its "
            "subscriptions_max and that of its peers"
        )
        self.patterns, self.limit = patterns, limit


class InUse(DurableError):
    """The `kind` called `name` was to be deleted, and is used: `how`, and what to do about it."""

    def __init__(self, kind: str, name: str, how: str) -> None:
        super().__init__(f"{kind} {name!r} is in use: {how}")
        self.kind, self.name, self.how = kind, name, how


class InternalExchange(DurableError):
    """Clients may not publish to the exchange `name`; bind it to one they may publish to."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"exchange {name!r} is internal: publish to an exchange that is bound to it"
        )
        self.name = name


class NoAdministrator(DurableError):
    """What was to be said of `cluster` would let nobody say any more who may do what; it was not."""

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"permission of {cluster!r}: nobody could change permissions any more; "
            r"first let a cluster configure its own, with '.*' or 'mesh\.permissions\..*'"
        )
        self.cluster = cluster


class AccessRefused(DurableError):
    """`cluster` lacks the permission `what` (configure, write, read) for the `kind` called `name`;
    without a name, for anything."""

    def __init__(self, cluster: str, what: str, kind: str, name: str) -> None:
        of, matches = (f" {shown(name)}", " that matches this name") if name else ("", "")
        super().__init__(
            f"cluster {cluster!r} may not {what} {kind}{of}: give it a {what} permission{matches}"
        )
        self.cluster, self.what, self.kind, self.name = cluster, what, kind, name
