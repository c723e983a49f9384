"""Whether there is somebody to replay to: asked before Spark starts, from this process."""

from __future__ import annotations

import trio

import durable
import mesh
from durable.errors import DurableError
from mesh.errors import MeshError
from security.errors import SecurityError

from ..sink.errors import Unreachable
from ..sink.options import QUEUES, SinkOptions
from ..sink.targets import opened


async def _names(options: SinkOptions) -> frozenset[str] | None:
    async with mesh.join(options.cluster, **options.joining) as node, opened(node, options, ""):
        if options.to != QUEUES:
            return None
        broker = durable.connect(
            node, cluster=options.broker, vhost=options.vhost, timeout=options.timeout_s
        )
        found = await broker.statistics()
        return frozenset(found["queues"]) | frozenset(found["streams"])


def destination_names(options: SinkOptions) -> frozenset[str] | None:
    """Queues and streams that the broker has; None: it goes to topics, which need not exist.

    Raises:
        Unreachable: nobody is there, or we have no keys.
    """
    try:
        return trio.run(_names, options)
    except DurableError:
        raise
    except (MeshError, SecurityError, OSError) as error:
        raise Unreachable("the mesh", str(error)) from None
