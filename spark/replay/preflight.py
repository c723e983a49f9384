"""Checks, from this process and before Spark starts, that there is something to replay and somebody to replay
it to."""

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
    """Return the sink's options, checked early. Raises UnknownOption, InvalidOption, ContradictoryOptions."""
    speed_options = {"startMicros": "1"}  # Required with a speed; the real one is set at the start.
    return read_sink_options({**plan.sink_options("-", 0, 1), **joining, **speed_options})


async def _fetch_names(options: SinkOptions) -> frozenset[str]:
    async with mesh.join(options.cluster, **options.joining) as node:
        if options.to != QUEUES:
            await find_members(node, options.timeout_s)
            return frozenset()
        broker = await find_broker(node, options)
        found = await broker.statistics()
        return frozenset(found["queues"]) | frozenset(found["streams"])


def destination_names(options: SinkOptions) -> frozenset[str]:
    """Return the broker's queues and streams; empty if it goes to topics, which need not exist.

    Raises:
        Unreachable: there is nobody to send to, or there are no keys.
    """
    try:
        return trio.run(_fetch_names, options)
    except DurableError:
        raise
    except (MeshError, SecurityError, OSError) as error:
        raise Unreachable("the mesh", str(error)) from None


def check_names(
    plan: ReplayPlan, wanted: Iterable[str], names: frozenset[str], cluster: str
) -> None:
    """Raises QueueMissing if one of `wanted` is not among `names`, those of the broker that `cluster` may see."""
    missing = [one for one in wanted if one not in names]
    if missing and plan.to.kind == QUEUES:
        raise QueueMissing(plan.to.broker, missing, cluster)


def check_exists(plan: ReplayPlan, joining: Mapping[str, str]) -> None:
    """Raises what `Catalog.check_exists` raises. If queues or streams are named, also what `refresh` and
    `check_selection` raise: only these need a walk through the log."""
    catalog = Catalog(read_options({**plan.source_options(1), **key_options(joining)}))
    catalog.check_exists()
    if plan.queues or plan.streams:
        catalog.refresh()
        catalog.retry_plan(catalog.check_selection)
