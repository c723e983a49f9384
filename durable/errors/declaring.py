"""Errors of declaring, binding, deleting or using something by its name."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from .root import DurableError, nearest, shown


class InvalidDefinition(DurableError, ValueError):
    """`field` of a `kind` (queue, exchange, ...) has the invalid `value`; the text says what is `allowed`.

    `where` is the entry of an import, as `queues[3]`; empty outside an import.
    """

    def __init__(self, kind: str, field: str, value: object, allowed: str, where: str = "") -> None:
        super().__init__(f"{where or kind}: {field} is {shown(value)}: want {allowed}")
        self.kind, self.field, self.value, self.allowed = kind, field, value, allowed
        self.where = where

    def at(self, where: str) -> InvalidDefinition:
        return InvalidDefinition(self.kind, self.field, self.value, self.allowed, where)


class DefinitionConflict(DurableError):
    """The `kind` called `name` exists with other settings; `differences` lists them."""

    def __init__(self, kind: str, name: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"{kind} {name!r} exists with other settings ({'; '.join(differences)}): "
            "declare it with the existing settings, or delete it first"
        )
        self.kind, self.name, self.differences = kind, name, tuple(differences)

    @classmethod
    def of_kinds(cls, name: str, existing: str, requested: str) -> DefinitionConflict:
        """Return the error for a name that a queue has and a stream is to get, or the reverse."""
        return cls(requested, name, [f"kind: existing {existing}, requested {requested}"])


class Unknown(DurableError):
    """Abstract: there is no `kind` called `name`; `nearest` is a similar name that exists, or empty.

    Args:
        known: names that exist, among which `nearest` is sought.
        hint: advice for the error text if no known name is similar.
        beside: advice for the error text in any case.
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
    FOR_QUEUE = '; to publish to a queue, use exchange "" and the name of the queue as the key'


class UnknownQueue(Unknown):
    """There is no queue called `name`; `flag` is the argument that would find what has that name, or empty."""

    kind = "queue"
    flag = ""
    """The text ends with it. Earlier brokers do not send it."""
    IS_STREAM = "a stream has that name: read or delete it as a stream"

    @classmethod
    def as_destination(
        cls, name: str, queues: Iterable[str], exchanges: Container[str]
    ) -> UnknownQueue:
        """Return the error for a binding to `name`, which may be an exchange instead."""
        if name not in exchanges:
            return cls(name, queues)
        error = cls(name, hint="an exchange has that name: bind to it with to_exchange")
        error.flag = "to_exchange"
        return error


class UnknownStream(Unknown):
    """There is no stream called `name`."""

    kind = "stream"
    IS_QUEUE = "a queue has that name: consume or delete it as a queue"


class UnknownVhost(Unknown):
    """There is no vhost called `name`."""

    kind = "vhost"


class VhostUnavailable(DurableError):
    """The vhost `name` exists, but could not be opened when the broker started."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"vhost {name!r} could not be opened: the broker's log says why; fix that, then "
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
    """`queue` belongs to another connection, and ends with that connection."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} is exclusive to another connection: use another name")
        self.queue = queue


class TooManyQueues(DurableError):
    """The vhost has `limit` queues and streams, its `queues_max`."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"there are already {limit} queues and streams: delete some, or raise queues_max"
        )
        self.limit = limit


class TooManyCursors(DurableError):
    """`stream` has `limit` cursors, the most it may have."""

    def __init__(self, stream: str, limit: int) -> None:
        super().__init__(
            f"stream {stream!r} already has {limit} cursors: delete one, read with an existing one, "
            "or read without a cursor"
        )
        self.stream, self.limit = stream, limit


class TooManyPatterns(DurableError):
    """All streams together would have `patterns` different patterns; this broker captures at most `limit`."""

    def __init__(self, patterns: int, limit: int) -> None:
        super().__init__(
            f"there would be {patterns} different patterns to capture, but the broker's node may have only "
            f"{limit} subscriptions: delete streams, use wider patterns, or raise subscriptions_max "
            "of that node and of its peers"
        )
        self.patterns, self.limit = patterns, limit


class InUse(DurableError):
    """The `kind` called `name` was to be deleted, but is in use; `how` says by what, and what to do about it.

    `flag` is the argument that asked for this, or empty; `how` ends with it.
    """

    flag = ""
    """Of earlier brokers, which do not send it."""

    def __init__(self, kind: str, name: str, how: str, flag: str = "") -> None:
        if flag:
            how += f", or delete it without {flag}"
        super().__init__(f"{kind} {name!r} is in use: {how}")
        self.kind, self.name, self.how, self.flag = kind, name, how, flag


class InternalExchange(DurableError):
    """Clients may not publish to the exchange `name`; bind it to one they may publish to."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"exchange {name!r} is internal: publish to an exchange that is bound to it"
        )
        self.name = name


class NoAdministrator(DurableError):
    """The permission asked for `cluster` was refused: no cluster could change permissions afterwards."""

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"permission of {cluster!r}: no cluster could change permissions any more; "
            r"first let a cluster configure its own permission, with '.*' or 'mesh\.permissions\..*'"
        )
        self.cluster = cluster


class AccessRefused(DurableError):
    """`cluster` lacks the permission `what` (configure, write, read) for the `kind` called `name`. If
    `name` is empty, `kind` says in words what the permission is missing for.

    It may also lack the permission `capture` for the pattern `name` in `vhost`, which is empty otherwise.
    """

    vhost = ""
    """Of earlier brokers, which do not send it."""

    def __init__(self, cluster: str, what: str, kind: str, name: str, vhost: str = "") -> None:
        of, matches = (f" {shown(name)}", " that matches this name") if name else ("", "")
        where = ""
        if vhost:
            where, matches = f" in vhost {shown(vhost)}", f" that matches the text of this {kind}"
        super().__init__(
            f"cluster {cluster!r} may not {what} {kind}{of}{where}: "
            f"give it a {what} permission{matches}"
        )
        self.cluster, self.what, self.kind, self.name = cluster, what, kind, name
        self.vhost = vhost
