"""The ports that a node binds, one per server key, and the addresses that it announces.

listen = tcp://0.0.0.0:0            any free ports; announced: every address of this host
listen = tcp://127.0.0.1:5600-5602  the door on 5600, then one port per cluster key
advertise = tcp://203.0.113.7:6600-6602   announced instead, port by port (a proxy, a NAT)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.endpoint import parse_endpoint
from discovery.errors import BadEndpoint
from discovery.interfaces import addresses
from security.announcement import ENDPOINTS_MAX, URI
from security.keyring import Keyring
from security.keys import ClusterKeys

from .config import MeshConfig
from .errors import CannotBind, ConfigError

WILDCARDS = ("0.0.0.0", "*", "")
PORT_MAX = 65535
PORTS_CHARS_MAX = len("65535-65535")


@dataclass(frozen=True, slots=True)
class PortRange:
    """`tcp://host:first-last`; port 0 means any free port."""

    host: str
    first: int
    last: int

    def port(self, number: int, key_count: int) -> int:
        """Return the port for key `number` of `key_count` keys (0: any free one). Raises ConfigError if there are too few."""
        if self.first == 0:
            return 0
        if self.first == self.last and number > 0:
            # Only one port was given: the door uses it, the other keys need no fixed port.
            return 0
        if self.first + number > self.last:
            raise ConfigError(
                f"listen: {self.first} to {self.last} are {number} ports, but this node binds {key_count}: one "
                "for each generation of each key; a rotation adds a generation"
            )
        return self.first + number


@dataclass(frozen=True, slots=True)
class Bind:
    """One address to bind, and what to announce for it."""

    uri: str
    keys: ClusterKeys
    advertise: str | None
    addresses_max: int

    def announced_uris(self, bound: str) -> list[str]:
        """Return the addresses to announce, given the address that was actually bound.

        Raises:
            ConfigError: nobody could dial it, for example IPv6's wildcard.
            CannotBind: this host has no address to announce.
        """
        if self.advertise is not None:
            return [self.advertise]
        host, _, port = bound.removeprefix("tcp://").rpartition(":")
        if host not in WILDCARDS:
            return [_dialable(f"tcp://{host}:{port}", "listen")]
        try:
            found = addresses()
        except OSError as error:  # For example where netlink is not allowed.
            raise CannotBind(
                self.uri, f"cannot list the addresses of this host: {error}"
            ) from error
        if not found:
            raise CannotBind(self.uri, "this host has no IPv4 address to announce: set advertise")
        # The last one is loopback, which must always be included.
        chosen = [*found[:-1][: self.addresses_max - 1], found[-1]]
        return [f"tcp://{address}:{port}" for address in chosen]


def parse_ports(text: str, setting: str) -> PortRange:
    """Parse `tcp://HOST:PORT` or `tcp://HOST:FIRST-LAST`. Raises ConfigError, which names `setting`."""
    host, _, numbers = text.removeprefix("tcp://").rpartition(":")
    first, _, last = numbers.partition("-")
    form = f"{setting}: want tcp://HOST:PORT or tcp://HOST:FIRST-LAST, got {text!r}"
    # No socket accepts unprintable characters, and int() fails on too long a number.
    if not text.startswith("tcp://") or not text.isprintable() or len(numbers) > PORTS_CHARS_MAX:
        raise ConfigError(form)
    if not first.isdecimal() or not (last or first).isdecimal():
        raise ConfigError(form)
    ports = PortRange(host, int(first), int(last or first))
    if ports.last > PORT_MAX or ports.first > PORT_MAX:
        raise ConfigError(f"{setting}: want ports of at most {PORT_MAX}, got {text!r}")
    if ports.first > ports.last:
        raise ConfigError(f"{setting}: want the first port to be below the last, got {text!r}")
    return ports


def binds_of(config: MeshConfig, keyring: Keyring) -> list[Bind]:
    """Return what a node with these settings binds. Raises ConfigError, and NoKey if it cannot be a member."""
    keys = [*keyring.door()]
    for cluster in config.clusters:
        keys += keyring.own(cluster)
    return bind_plan(config.listen, config.advertise, keys)


def bind_plan(listen: str, advertise: str | None, keys: Sequence[ClusterKeys]) -> list[Bind]:
    """Return what to bind for these server keys, in this order. Raises ConfigError."""
    ports = parse_ports(listen, "listen")
    advertised = parse_ports(advertise, "advertise") if advertise is not None else None
    plan = []
    for number, one in enumerate(keys):
        port = ports.port(number, len(keys))
        uri = f"tcp://{ports.host or '*'}:{port or '*'}"
        advertised_uri = None
        if advertised is not None:
            advertised_port = advertised.first + number
            if advertised_port > advertised.last:
                raise ConfigError(
                    f"advertise: {advertised.last - advertised.first + 1} ports for {len(keys)} keys"
                )
            advertised_uri = _dialable(f"tcp://{advertised.host}:{advertised_port}", "advertise")
        plan.append(Bind(uri, one, advertised_uri, ENDPOINTS_MAX // len(keys)))
    return plan


def _dialable(uri: str, setting: str) -> str:
    """Return `uri` if announcements may contain it and others can dial it. Raises ConfigError."""
    try:
        parse_endpoint(uri)
    except BadEndpoint as error:
        raise ConfigError(f"{setting}: other nodes cannot dial {uri}: {error.reason}") from None
    # It contains the name of an interface, which has no meaning on other machines.
    if not URI.fullmatch(uri):
        raise ConfigError(f"{setting}: other machines cannot dial {uri}")
    return uri
