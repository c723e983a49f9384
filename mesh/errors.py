"""Every error that a user of the mesh can get, in one tree.

MeshError
├── ConfigError (ValueError)      a setting is wrong; raised before any socket opens
│   ├── OutOfRange                `setting` is `value`, which is not as `want` requires
│   └── CannotBind                a valid address that the system does not let us bind now
├── KeyMissing                    no key for a cluster; says how to make one
├── TooLarge (ValueError)         payload over a limit; checked before anything is sent
├── InvalidName (ValueError)      an invalid name of a cluster or endpoint, topic or pattern
├── LimitReached                  one of the node's named limits; nothing was sent
├── RequestError                  abstract: a request that brought no reply
│   ├── NoMembers                 no member of the cluster can be asked
│   ├── RequestTimeout            the deadline passed; `maybe_executed`
│   ├── Overloaded                every member tried said BUSY: `setting`, `limit`; `retry_after_s`
│   ├── PeerLost                  the member was lost with the request; `maybe_executed`
│   └── ServiceError              the handler refused or failed: `code`, `message`
├── TunnelBroken                  the other end or the link is gone; bytes sent and received
├── WrongThread (RuntimeError)    called from a thread that is not the node's; says how to call instead
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
    """`setting`, of a broker or of its log, is `value`; `want` says which values are allowed."""

    def __init__(self, setting: str, value: float, want: str) -> None:
        super().__init__(f"{setting} is {value}, want {want}")
        self.setting, self.value, self.want = setting, value, want


class CannotBind(ConfigError):
    """The system refused to bind `uri`; `why`: it is in use, or not an address of this machine."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(f"listen: cannot bind {uri}: {why}")
        self.uri, self.why = uri, why


class KeyMissing(MeshError):
    """No usable key for a cluster; the text says how to make one, or what is wrong with the one configured."""


class TooLarge(MeshError, ValueError):
    """`what` has `size_bytes`, more than `limit_bytes`. Nothing was sent.

    Args:
        source: what sets the limit, for the error text; empty if nothing does.
        hint: advice for the error text.
    """

    LESSER = "the lesser payload_bytes_max of both ends"
    TUNNEL = "a tunnel carries more"

    def __init__(
        self, what: str, size_bytes: int, limit_bytes: int, source: str = "", hint: str = ""
    ) -> None:
        text = f"{what} of {size_bytes} bytes exceeds the limit of {limit_bytes} bytes"
        super().__init__(text + f" ({source})" * bool(source) + f": {hint}" * bool(hint))
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class InvalidName(MeshError, ValueError):
    """A name that is not a valid cluster, endpoint, topic or pattern; the text says what is valid."""


class LimitReached(MeshError):
    """The limit `setting` of this node, which is `limit`, is reached. Nothing was sent."""

    def __init__(self, setting: str, limit: int) -> None:
        super().__init__(f"limit reached: {setting} is {limit}")
        self.setting, self.limit = setting, limit


class RequestError(MeshError):
    """Abstract: a request brought no reply. `maybe_executed` says whether a handler may have run.

    That includes a handler on an earlier member that was lost, if the request was sent again because it is idempotent.
    """

    maybe_executed = False


class NoMembers(RequestError):
    """The cluster had no member to ask for `waited_s`.

    `present` names the clusters of which this node knows members. If there are some, the name of the
    cluster may be wrong; if there are none, this node probably cannot find any others.
    """

    def __init__(self, cluster: str, waited_s: float, present: Sequence[str] = ()) -> None:
        shown = ", ".join(present[:CLUSTERS_SHOWN]) + ", ..." * (len(present) > CLUSTERS_SHOWN)
        hint = (
            f"there are members of {shown}"
            if present
            else "no other members either: see `mesh doctor`"
        )
        if cluster in present:
            hint = "its members cannot be asked now"
        super().__init__(f"no members of cluster {cluster!r} after {waited_s:.1f} s; {hint}")
        self.cluster, self.waited_s, self.present = cluster, waited_s, tuple(present)


class RequestTimeout(RequestError, TimeoutError):
    """No reply within `timeout_s`. `maybe_executed`: whether the request had left this node."""

    def __init__(self, target: str, timeout_s: float, *, maybe_executed: bool) -> None:
        super().__init__(f"no reply from {target!r} within {timeout_s:.3f} s")
        self.target, self.timeout_s, self.maybe_executed = target, timeout_s, maybe_executed


class Overloaded(RequestError):
    """`tried` members answered BUSY without starting the request; try again in `retry_after_s`.

    `setting` is the limit that the last of them had reached, and `limit` its value; empty if the member is leaving,
    or did not say. If it is `outbox_bytes`, too much already waits to be sent on the link to that member, at
    either end.
    """

    def __init__(
        self, target: str, tried: int, retry_after_s: float, setting: str = "", limit: int = 0
    ) -> None:
        why = f"; {setting} is {limit}" if setting else ""
        super().__init__(
            f"{target!r}: members busy: {tried}; retry after {retry_after_s:.3f} s{why}"
        )
        self.target, self.tried, self.retry_after_s = target, tried, retry_after_s
        self.setting, self.limit = setting, limit


class PeerLost(RequestError):
    """The member that had the request is gone. `maybe_executed` says whether its handler may have run."""

    def __init__(self, target: str, peer: str, *, maybe_executed: bool) -> None:
        what = "may have been executed" if maybe_executed else "was not executed"
        super().__init__(f"{target!r}: member {peer} lost, the request {what}")
        self.target, self.peer, self.maybe_executed = target, peer, maybe_executed


REFUSALS = frozenset({"no_such_endpoint", "not_allowed"})
"""Codes with which a member refuses a request before its handler runs."""


class ServiceError(RequestError):
    """The member's handler refused or failed. Raise it in a handler to answer with it.

    The mesh itself uses the codes `failed` (the handler raised another exception), `no_such_endpoint` and
    `not_allowed`. If a handler raises one of the last two, its caller gets `failed`, since the handler has run.
    All other codes are yours; an empty one is a ValueError.
    """

    # For derived classes that do not call this constructor.
    code, message = "failed", ""
    maybe_executed = True

    def __init__(self, code: str, message: str = "") -> None:
        if not isinstance(code, str) or not isinstance(message, str):
            kinds = f"{type(code).__name__}, {type(message).__name__}"
            raise TypeError(f"ServiceError: want code and message as str, got {kinds}")
        if not code:
            raise ValueError("ServiceError: want a code, got an empty string")
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.message = code, message
        self.maybe_executed = code not in REFUSALS


class TunnelBroken(MeshError):
    """The tunnel ended without a clean close. The byte counts are those of this end."""

    def __init__(self, reason: str, *, sent_bytes: int = 0, received_bytes: int = 0) -> None:
        super().__init__(f"tunnel broken: {reason} (sent {sent_bytes}, received {received_bytes})")
        self.reason, self.sent_bytes, self.received_bytes = reason, sent_bytes, received_bytes


class WrongThread(MeshError, RuntimeError):
    """A node was called from a thread that is not its own. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "a node may be used only in the trio thread that joined: from other threads, call "
            "trio.from_thread.run(node.publish, ...), or run_sync for functions that are not async"
        )


class NodeClosed(MeshError):
    """This node has left the mesh, or is leaving it. `maybe_executed`: whether a request under way may have run."""

    def __init__(self, text: str, *, maybe_executed: bool = False) -> None:
        super().__init__(text)
        self.maybe_executed = maybe_executed


class NodeCrashed(MeshError):
    """A background task of this node failed; the cause is chained. Please report it."""


class RemoteProtocolError(MeshError):
    """The peer violated the protocol. Only its link is closed."""
