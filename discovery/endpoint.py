"""Endpoints as text: `tcp://host:port`, IPv6 in brackets. The host is a name or an address.

Wildcards are refused: a node can listen at `tcp://0.0.0.0:9000`, but nobody can dial it.
"""

from __future__ import annotations

import ipaddress
import re

from .errors import BadEndpoint

HOST_CHARS_MAX = 253
"""The longest name that DNS allows (RFC 1035)."""

_FORM = re.compile(
    r"(?P<scheme>[a-z]+)://(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d{1,5})"
)
# RFC 952 allows no underscores in host names, but docker compose makes names with them.
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")


def parse_endpoint(text: str, scheme: str = "tcp") -> tuple[str, int]:
    """Return host (without brackets) and port of `text`. Raises BadEndpoint, which names `text`."""
    match = _FORM.fullmatch(text)
    if match is None or match["scheme"] != scheme or not text.isascii():
        raise BadEndpoint(text, f"expected {scheme}://host:port")
    if not 1 <= int(match["port"]) <= 65535:
        raise BadEndpoint(text, "the port must be 1 to 65535")
    return _host(text, match), int(match["port"])


def format_endpoint(host: str, port: int) -> str:
    """Return the endpoint as text: the inverse of `parse_endpoint` for scheme tcp."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_address(host: str) -> bool:
    """Return whether a host from `parse_endpoint` is an IP address, not a name that has to be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host(text: str, match: re.Match[str]) -> str:
    host = match["host"] if match["six"] is None else match["six"]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if match["six"] is not None and not isinstance(address, ipaddress.IPv6Address):
        raise BadEndpoint(text, "no IPv6 address in the brackets")
    if address is not None and address.is_unspecified:
        raise BadEndpoint(text, "a wildcard address cannot be dialled")
    # "10.0.0.256" would pass as a name, although no top-level domain is a number.
    if address is None and host.rstrip(".").rpartition(".")[2].isdigit():
        raise BadEndpoint(text, "not an IPv4 address")
    if address is None and (len(host) > HOST_CHARS_MAX or not _NAME.fullmatch(host)):
        raise BadEndpoint(text, "not a host name or address")
    return host
