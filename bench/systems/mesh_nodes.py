"""How the mesh's clients join: encrypted, on loopback, the first one as everybody's seed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import mesh

from .system import HOST, Place

CLIENT = "caller"


def join(
    place: Place, who: str | mesh.Service = CLIENT, *, first: bool = False
) -> AbstractAsyncContextManager[mesh.Node]:
    """The first one listens where the others look for it."""
    return mesh.join(
        who,
        listen=f"tcp://{HOST}:{place.ports[0] if first else 0}",
        seeds=[] if first else [f"tcp://{HOST}:{place.ports[0]}"],
        zeroconf=False,
        network_secret=place.secret,
    )
