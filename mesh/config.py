"""MeshConfig: every setting of a node, with its unit, its default and the reason for it.

`settings.py` says where values come from: keywords, then `MESH_*` variables, then mesh.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from security.announcement import CLUSTERS_MAX, LIFETIME_S_MAX

from .errors import ConfigError
from .names import check_cluster

KIB, MIB = 1 << 10, 1 << 20

KEY_SOURCES = ("network_secret", "network_secret_file", "keys_dir")
"""The settings that say where the keys are; at most one may be set."""

HEADERS_BYTES_MAX = 60 * KIB
"""Headers that every peer accepts beside its largest payload: a record has 64 KiB for everything but the payload."""

AT_LEAST: dict[str, float] = {
    "request_timeout_s": 0.001, "settle_s": 0.0, "concurrency": 1, "queue_requests": 0,
    "queue_bytes": 0, "requests_max": 1, "heartbeat_s": 0.05, "handshake_s": 0.05, "drain_s": 0.0,
    "announce_s": 1.0, "lifetime_s": 2, "clock_skew_s": 0, "tombstone_s": 1.0,
    "payload_bytes_max": 1, "headers_bytes_max": 16, "frame_bytes_max": 4 * KIB,
    "chunk_bytes": KIB, "outbox_bytes": KIB, "subscription_bytes": 1, "ack_delay_s": 0.0,
    "subscriptions_max": 1, "tunnels_max": 1, "topics_max": 1, "peers_max": 1,
    "reassembly_bytes_max": 256 * KIB,
}  # fmt: skip
"""Smallest sensible value of each setting that has one. `reassembly_bytes_max` must hold gossip, which is at most
128 KiB, however small payloads are."""

AT_MOST: dict[str, float] = {
    "handshake_s": 600, "suspect_s": 86_400, "lifetime_s": LIFETIME_S_MAX,
    "clock_skew_s": 100 * LIFETIME_S_MAX, "frame_bytes_max": 1 << 30, "chunk_bytes": 1 << 29,
    "payload_bytes_max": 1 << 31, "headers_bytes_max": HEADERS_BYTES_MAX,
    "window_bytes": 1 << 40, "outbox_bytes": 1 << 40, "tunnel_window_bytes": 1 << 40,
    "reassembly_bytes_max": 1 << 41,
}  # fmt: skip
"""Largest value of each setting that libzmq or a field on the wire limits."""

RELATIONS: tuple[tuple[str, float, str], ...] = (
    ("stalled_s", 2, "heartbeat_s"),
    ("suspect_s", 2, "heartbeat_s"),
    ("dead_s", 1.1, "suspect_s"),
    ("resume_s", 1, "dead_s"),
    ("lifetime_s", 2, "announce_s"),
    ("frame_bytes_max", 2, "chunk_bytes"),
    ("window_bytes", 2, "frame_bytes_max"),
    ("tunnel_window_bytes", 1, "chunk_bytes"),
    ("reassembly_bytes_max", 2, "payload_bytes_max"),
)
"""(setting, factor, other): the setting must be at least factor times the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    """Settings of one node; the defaults suit a LAN of up to 100 of them.

    Raises:
        ConfigError: a value is out of range or contradicts another; the text names both.
    """

    clusters: tuple[str, ...]
    """Clusters this node is a member of, at least one; dials use the key of the first."""

    # Where

    listen: str = "tcp://0.0.0.0:0"
    """Address to bind; port 0 is any free one. With a range, `tcp://HOST:5600-5605`, ports are taken in
    order: the door for introductions first (with a network secret), then one per cluster key."""

    advertise: str | None = None
    """Announced to others instead of `listen`, port by port: for a proxy or a NAT in between."""

    seeds: tuple[str, ...] = ()
    """Addresses of other nodes, `tcp://HOST:PORT`. One that answers is enough to learn of all others."""

    dns: tuple[str, ...] = ()
    """Names that resolve to nodes, `dns://NAME:PORT`, as a headless service has."""

    seeds_file: Path | None = None
    """A file of addresses, one a line; read again when it changes."""

    zeroconf: bool = True
    """Find others on the local network, and be found, by multicast DNS."""

    zeroconf_interfaces: tuple[str, ...] = ()
    """IPv4 addresses of the interfaces to use for zeroconf; if none are given, all are used."""

    # Keys; exactly one of the three

    network_secret: str | None = field(default=None, repr=False)
    """`mesh-network-1-...`, as `mesh keys new-network` makes it; during a rotation two, with a space between."""

    network_secret_file: Path | None = None
    """A file that contains the network secret, mode 0600."""

    keys_dir: Path | None = None
    """Directory of per-cluster key files, for clusters that must not impersonate each other."""

    # Requests

    request_timeout_s: float = 5.0
    """Default timeout of a request. No request waits for ever."""

    settle_s: float = 2.0
    """How long a request waits, while its cluster has no member, before NoMembers."""

    concurrency: int = 64
    """Handlers of one service that run at a time, unless the service says otherwise."""

    queue_requests: int = 256
    """Requests that wait while that many handlers run; further ones get BUSY."""

    queue_bytes: int = 64 * MIB
    """Payload bytes of these waiting requests, all together."""

    requests_max: int = 100_000
    """Unanswered requests of this node."""

    # Liveness

    heartbeat_s: float = 1.0
    """Pause between heartbeats on every link. Idle cost: one small frame per link and second."""

    stalled_s: float = 3.0
    """Silence of a member's event loop, while its path is alive, after which it is taken out of rotation."""

    suspect_s: float = 3.0
    """Silence of the path before libzmq ends the connection: three of its heartbeats."""

    dead_s: float = 6.0
    """Silence of the path after which requests to a member fail."""

    resume_s: float = 15.0
    """Time within which a broken link can come back with nothing lost."""

    handshake_s: float = 1.0
    """Time limit of a dial, after which the address counts as unreachable. After failures up to 4 times as long."""

    drain_s: float = 5.0
    """Time for running handlers and unsent data when the node leaves."""

    # Announcements

    announce_s: float = 60.0
    """Pause between renewals of this node's announcement."""

    lifetime_s: int = 600
    """How long an announcement is valid; ten renewals may get lost."""

    clock_skew_s: int = 300
    """How far the clocks of two nodes may be apart."""

    tombstone_s: float = 600.0
    """How long a node that left is refused, so that a replayed announcement cannot bring it back."""

    # Sizes

    payload_bytes_max: int = 16 * MIB
    """Largest payload, ours or a peer's. Send larger things through a tunnel."""

    headers_bytes_max: int = 8 * KIB
    """Largest headers of one message, as msgpack."""

    frame_bytes_max: int = 256 * KIB
    """Largest frame. Measured: half of it costs a fifth more CPU per byte, twice gains nothing."""

    chunk_bytes: int = 64 * KIB
    """Size of the pieces of large records, so that small ones do not wait behind them."""

    window_bytes: int = 4 * MIB
    """Unacknowledged bytes per lane of a link: 4 MiB fill 10 ms at 3 Gbit/s."""

    outbox_bytes: int = 16 * MIB
    """Bytes that may wait for one link before the policies of its subscriptions apply."""

    subscription_bytes: int = 16 * MIB
    """Default `limit_bytes` of a subscription."""

    tunnel_window_bytes: int = 2 * MIB
    """Bytes that may be in flight or unread in a tunnel; also the size of its largest part."""

    reassembly_bytes_max: int = 64 * MIB
    """Bytes of unfinished records of one link; a peer that exceeds it loses the link."""

    ack_delay_s: float = 0.05
    """How long an acknowledgement may wait for a frame that can carry it."""

    # Counts

    subscriptions_max: int = 10_000
    """Subscriptions of this node, and of one peer at this node."""

    tunnels_max: int = 10_000
    """Open tunnels of this node, in both directions together; also running tunnel handlers."""

    topics_max: int = 100_000
    """Topics whose sequence this node remembers as a publisher; idle ones are forgotten first."""

    peers_max: int = 1_000
    """Nodes that this one knows; each is a link with two connections."""

    def __post_init__(self) -> None:
        if not self.clusters:
            raise ConfigError("clusters: a node must be a member of at least one cluster")
        if len(self.clusters) > CLUSTERS_MAX:
            raise ConfigError(
                f"clusters: {len(self.clusters)} given, a node may have at most {CLUSTERS_MAX}"
            )
        for cluster in self.clusters:
            check_cluster(cluster)
        if len(set(self.clusters)) < len(self.clusters):
            raise ConfigError(f"clusters: {', '.join(self.clusters)} has a duplicate")
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            if not value >= least:  # `not >=` also refuses NaN.
                raise ConfigError(f"{name}: must be at least {least}, got {value}")
        for name, most in AT_MOST.items():
            value = getattr(self, name)
            if value > most:
                raise ConfigError(f"{name}: must be at most {most}, got {value}")
        for name, factor, other in RELATIONS:
            value, least = getattr(self, name), factor * getattr(self, other)
            if not value >= least:  # `not >=` also refuses NaN.
                raise ConfigError(
                    f"{name}: {value} is too small for {other}, which is {getattr(self, other)}: "
                    f"want at least {least}"
                )
        if len(given := self.key_settings) > 1:
            raise ConfigError(f"{' and '.join(given)}: give one source of keys, not several")

    @property
    def key_settings(self) -> dict[str, Any]:
        """The key setting that is given, as keywords of `load_keyring`; empty if none is."""
        return {name: value for name in KEY_SOURCES if (value := getattr(self, name))}
