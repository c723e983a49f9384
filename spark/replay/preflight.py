"""Whether there is something to replay, and somebody to replay it to: asked before Spark starts, from
this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

import mesh
from durable.errors import DurableError
from mesh.errors import MeshError
from security.errors import SecurityError

from ..capture.catalog import Catalog
from ..capture.options import read_options
from ..settings import key_options
from ..sink.errors import Unreachable
from ..sink.options import QUEUES, SinkOptions, read_sink_options
from ..sink.targets import find_broker, find_members
from .errors import QueueMissing
from .plan import ReplayPlan


def checked_options(plan: ReplayPlan, joining: Mapping[str, str]) -> SinkOptions:
    """Of the sink, before there is anything to send. Raises UnknownOption, InvalidOption, ContradictoryOptions."""
    begun = {"startMicros": "1"}  # What goes at a speed has to be told when it begins.
    return read_sink_options({**plan.sink_options("-", 0, 1), **joining, **begun})


async def _names(options: SinkOptions) -> frozenset[str]:
    async with mesh.join(options.cluster, **options.joining) as node:
        if options.to != QUEUES:
            await find_members(node, options.timeout_s)
            return frozenset()
        broker = await find_broker(node, options)
        found = await broker.statistics()
        return frozenset(found["queues"]) | frozenset(found["streams"])


def destination_names(options: SinkOptions) -> frozenset[str]:
    """Queues and streams that the broker has; none where it goes to topics, which need not exist.

    Raises:
        Unreachable: nobody is there, or we have no keys.
    """
    try:
        return trio.run(_names, options)
    except DurableError:
        raise
    except (MeshError, SecurityError, OSError) as error:
        raise Unreachable("the mesh", str(error)) from None


def check_names(
    plan: ReplayPlan, wanted: Iterable[str], names: frozenset[str], cluster: str
) -> None:
    """Raises QueueMissing: the broker has `names`, as far as `cluster` may know, and not all of those."""
    missing = [one for one in wanted if one not in names]
    if missing and plan.to.kind == QUEUES:
        raise QueueMissing(plan.to.broker, missing, cluster)


def check_there(plan: ReplayPlan, joining: Mapping[str, str]) -> None:
    """Raises what `Catalog.check_there` does, and where queues or streams are named, what `look` and
    `check` do: only they cost a walk through the log."""
    catalog = Catalog(read_options({**plan.source_options(1), **key_options(joining)}))
    catalog.check_there()
    if plan.queues or plan.streams:
        catalog.look()
        catalog.planned(catalog.check)
