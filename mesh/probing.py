"""Probes whether anything listens at an address, by opening a TCP connection and sending nothing."""

from __future__ import annotations

import trio

from discovery.endpoint import parse_endpoint
from discovery.errors import BadEndpoint
from discovery.resolver import Resolver

from .protocol.instructions import ProbeResult

PROBE_S = 1.0
HOLD_OPEN_S = 0.05
"""How long the connection stays open, so that the peer has accepted it and can see that it sent nothing."""


async def probe(resolver: Resolver, endpoint: str) -> ProbeResult:
    """Return what was found. SILENT, which proves nothing, also stands for an address that cannot be dialled (a peer
    may announce one) and for having no socket to probe with."""
    found = ProbeResult.SILENT
    with trio.move_on_after(PROBE_S):
        try:
            host, port = parse_endpoint(endpoint)
            address = await resolver.address_to_dial(host)
            if address is not None:
                family = trio.socket.AF_INET6 if ":" in address else trio.socket.AF_INET
                with trio.socket.socket(family) as one:
                    await one.connect((address, port))
                    found = ProbeResult.LISTENS
                    await trio.sleep(HOLD_OPEN_S)
        except ConnectionRefusedError:
            found = ProbeResult.REFUSED
        except (OSError, BadEndpoint):
            pass
    return found
