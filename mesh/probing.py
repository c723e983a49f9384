"""Whether anything listens at an address: a TCP connection is opened there, and nothing is sent."""

from __future__ import annotations

import trio

from discovery.endpoint import parse_endpoint
from discovery.errors import BadEndpoint

from .protocol.instructions import Probed
from .resolver import Resolver

PROBE_S = 1.0
SEEN_S = 0.05
"""So long a probe stays: until its peer has seen that it came, and can tell that it said nothing."""


async def probe(resolver: Resolver, endpoint: str) -> Probed:
    """No answer is no proof, and no socket to ask with is none either; nor, as a peer may say that it is at one, is an
    address that is none."""
    found = Probed.SILENT
    with trio.move_on_after(PROBE_S):
        try:
            host, port = parse_endpoint(endpoint)
            address = await resolver.look_up(host, port)
            if address is not None:
                family = trio.socket.AF_INET6 if ":" in address else trio.socket.AF_INET
                with trio.socket.socket(family) as one:
                    await one.connect((address, port))
                    found = Probed.LISTENS
                    await trio.sleep(SEEN_S)
        except ConnectionRefusedError:
            found = Probed.REFUSED
        except (OSError, BadEndpoint):
            pass
    return found
