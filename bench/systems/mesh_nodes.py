"""How the mesh's clients join: encrypted, on loopback, the first one as everybody's seed.

A connection is a node. Those that make requests link to the one that answers and to nobody else:
25 nodes in one process that also watch each other would be 600 links, which no peer has.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import mesh

from .system import HOST, Place

CLIENT = "caller"


def join(
    place: Place, who: str | mesh.Service = CLIENT, *, first: bool = False
) -> AbstractAsyncContextManager[mesh.Node]:
    """The first one listens where the others look for it."""
    more: Any = {} if first else {"peers_max": 1}
    return mesh.join(
        who,
        listen=f"tcp://{HOST}:{place.ports[0] if first else 0}",
        seeds=[] if first else [f"tcp://{HOST}:{place.ports[0]}"],
        zeroconf=False,
        network_secret=place.secret,
        **more,
    )
