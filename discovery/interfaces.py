"""This machine's IPv4 addresses, which of them support multicast, and an id of the host as loopback sees it."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MDNS_GROUP, MDNS_PORT = "224.0.0.251", 5353


def addresses() -> list[str]:
    """Return the IPv4 addresses of this host in the order of its interfaces, loopback last."""
    return list(address_indexes())


def address_indexes() -> dict[str, int]:
    """Return for each of `addresses` the index of its interface: an interface that takes the place of another one, with
    the same address, has another index."""
    import ifaddr  # 2 ms; most users of this package never list interfaces

    found: dict[str, int] = {}
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            if ip.is_IPv4:
                found.setdefault(str(ip.ip), adapter.index or 0)
    return dict(sorted(found.items(), key=lambda one: ipaddress.IPv4Address(one[0]).is_loopback))


def host_id() -> bytes:
    """Return 8 bytes that are equal for two processes exactly if they can reach each other over loopback.

    BLAKE2b over the kernel's boot id and the network namespace: containers on one machine get different ids,
    unless they share a namespace (a Kubernetes pod, `--network host`). Where /proc does not tell, the
    hash is over the host name instead.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = b"%b %d" % (file.read().strip(), os.stat("/proc/self/ns/net").st_ino)
    except OSError:
        text = socket.gethostname().encode()
    return hashlib.blake2b(text, digest_size=8, person=b"mesh-host-id").digest()


def multicast_addresses(candidates: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the candidates on whose interface mDNS can work, and for each of the others the reason why not.

    This is tried with a socket of our own: one bad address makes zeroconf's constructor raise, and the
    sockets that it had opened by then are never closed.
    """
    usable: list[str] = []
    reasons: list[str] = []
    for address in candidates:
        try:
            _join_group(address)
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            usable.append(address)
    return usable, reasons


def _join_group(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind((address, MDNS_PORT))
        group = socket.inet_aton(MDNS_GROUP) + socket.inet_aton(address)
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
