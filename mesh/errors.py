"""Every error a user of the mesh can meet, in one tree.

MeshError
├── ConfigError (ValueError)      a setting is wrong; raised before any socket opens
│   ├── OutOfRange                `setting` is `value`, and has to be what `want` says
│   └── CannotBind                nothing is wrong with the address, but it cannot be had here and now
├── KeyMissing                    no key for a cluster; says how to make one
├── TooLarge (ValueError)         payload over a limit; checked before anything is sent
├── InvalidName (ValueError)      a cluster, endpoint, topic or pattern that cannot be one
├── LimitReached                  one of the node's named limits; nothing was sent
├── RequestError                  abstract: a request that brought no reply
│   ├── NoMembers                 nobody in the cluster to ask
│   ├── RequestTimeout            the deadline passed; `maybe_executed`
│   ├── Overloaded                every member tried said BUSY: `setting`, `limit`; `retry_after_s`
│   ├── PeerLost                  the member vanished with the request; `maybe_executed`
│   └── ServiceError              the handler said no: `code`, `message`
├── TunnelBroken                  the other end or the link is gone; bytes sent and received
├── WrongThread (RuntimeError)    a thread that is not the node's called it; says how to
├── NodeClosed                    the node has left, or is leaving; `maybe_executed`
├── NodeCrashed                   a background task of ours failed: a bug, please report it
└── RemoteProtocolError           the peer's fault; never reaches a user, costs one link
"""

from __future__ import annotations

from collections.abc import Sequence

CLUSTERS_SHOWN = 5


class MeshError(Exception):
    """Root of all errors of the mesh and of its durable tier."""


class ConfigError(MeshError, ValueError):
    """A setting is unknown, contradictory or out of range; the text names it."""


class OutOfRange(ConfigError):
    """`setting` of a broker or of its log is `value`; `want` says what it may be."""

    def __init__(self, setting: str, value: float, want: str) -> None:
        super().__init__(f"{setting} is {value}, want {want}")
        self.setting, self.value, self.want = setting, value, want


class CannotBind(ConfigError):
    """`uri` is to be bound, which the system refused: `why`. In use, or no address of this machine."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(f"listen: cannot bind {uri}: {why}")
        self.uri, self.why = uri, why


class KeyMissing(MeshError):
    """The keyring has no key for what was asked; the text says how to make one."""


class TooLarge(MeshError, ValueError):
    """`what` has `size_bytes`, more than `limit_bytes`. Nothing was sent."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what} of {size_bytes} bytes exceeds the limit of {limit_bytes} bytes")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class InvalidName(MeshError, ValueError):
    """`name` is not a valid cluster, endpoint, topic or pattern; the text says what is."""


class LimitReached(MeshError):
    """A named limit of this node: `setting` allows `limit` and no more. Nothing was sent."""

    def __init__(self, setting: str, limit: int) -> None:
        super().__init__(f"limit reached: {setting} is {limit}")
        self.setting, self.limit = setting, limit


class RequestError(MeshError):
    """A request brought no reply. `maybe_executed` says whether a handler may have run.

    Any: also of a member that was lost, if another could be asked because it is safe to ask twice.
    """

    maybe_executed = False


class NoMembers(RequestError):
    """The cluster has no member that could be asked, after waiting `waited_s` for one.

    `present` are the clusters this node knows members of: with some, the name may be wrong, with none
    it is more likely that this node finds nobody.
    """

    def __init__(self, cluster: str, waited_s: float, present: Sequence[str] = ()) -> None:
        shown = ", ".join(present[:CLUSTERS_SHOWN]) + ", ..." * (len(present) > CLUSTERS_SHOWN)
        hint = f"there are members of {shown}" if present else "nor of any other: see `mesh doctor`"
        if cluster in present:
            hint = "those there are cannot be asked now"
        super().__init__(f"no members of cluster {cluster!r} after {waited_s:.1f} s; {hint}")
        self.cluster, self.waited_s, self.present = cluster, waited_s, tuple(present)


class RequestTimeout(RequestError, TimeoutError):
    """No reply within `timeout_s`. `maybe_executed`: the request had left this node."""

    def __init__(self, target: str, timeout_s: float, *, maybe_executed: bool) -> None:
        super().__init__(f"no reply from {target!r} within {timeout_s:.3f} s")
        self.target, self.timeout_s, self.maybe_executed = target, timeout_s, maybe_executed


class Overloaded(RequestError):
    """`tried` members said BUSY before they started it; try again in `retry_after_s`.

    `setting` allows the last of them `limit` and no more; empty: it is leaving, or does not say.
    `outbox_bytes` is of the link to it, at either end: what is to be sent there waits already.
    """

    def __init__(
        self, target: str, tried: int, retry_after_s: float, setting: str = "", limit: int = 0
    ) -> None:
        why = f"; {setting} is {limit}" if setting else ""
        super().__init__(
            f"{target!r}: members busy: {tried}, retry after {retry_after_s:.3f} s{why}"
        )
        self.target, self.tried, self.retry_after_s = target, tried, retry_after_s
        self.setting, self.limit = setting, limit


class PeerLost(RequestError):
    """The member that held the request is gone."""

    def __init__(self, target: str, peer: str, *, maybe_executed: bool) -> None:
        what = "may have been executed" if maybe_executed else "was not executed"
        super().__init__(f"{target!r}: member {peer} lost, the request {what}")
        self.target, self.peer, self.maybe_executed = target, peer, maybe_executed


REFUSALS = frozenset({"no_such_endpoint", "not_allowed"})
"""Codes of the member before its handler: it has not run."""


class ServiceError(RequestError):
    """The member's handler refused or failed. Raise it in a handler to answer with it.

    Codes of the mesh itself: `failed` (the handler raised something else), `no_such_endpoint`,
    `not_allowed`; with one of the last two a handler only says `failed`, since it has run. All others
    are yours; an empty one is a ValueError.
    """

    def __init__(self, code: str, message: str = "") -> None:
        if not isinstance(code, str) or not isinstance(message, str):
            kinds = f"{type(code).__name__}, {type(message).__name__}"
            raise TypeError(f"ServiceError: want code and message as str, got {kinds}")
        if not code:
            raise ValueError("ServiceError: want a code, got an empty one")
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.message = code, message
        self.maybe_executed = code not in REFUSALS


class TunnelBroken(MeshError):
    """The tunnel ended without a clean close. Byte counts are of this end."""

    def __init__(self, reason: str, *, sent_bytes: int = 0, received_bytes: int = 0) -> None:
        super().__init__(f"tunnel broken: {reason} (sent {sent_bytes}, received {received_bytes})")
        self.reason, self.sent_bytes, self.received_bytes = reason, sent_bytes, received_bytes


class WrongThread(MeshError, RuntimeError):
    """A thread that is not the node's called it. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "a node belongs to the trio thread that joined: from other threads "
            "trio.from_thread.run(node.publish, ...), run_sync for what does not wait"
        )


class NodeClosed(MeshError):
    """This node has left the mesh, or is leaving it. `maybe_executed`: of a request under way."""

    def __init__(self, text: str, *, maybe_executed: bool = False) -> None:
        super().__init__(text)
        self.maybe_executed = maybe_executed


class NodeCrashed(MeshError):
    """A background task of this node failed; the cause is chained. Please report it."""


class RemoteProtocolError(MeshError):
    """The peer broke the protocol. It costs that link and nothing else."""
