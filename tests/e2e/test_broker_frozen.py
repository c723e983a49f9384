"""A broker that stands still for a while: what it confirmed is there, and what was sent again is there once."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

import durable
import mesh
from tests.broker import broker
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.queue_load import RETURNS, QueueLoad
from tests.waiting import until

SEED, PARTS = 7, 30
PATIENT = {"stalled_s": 4.0, "suspect_s": 4.5, "dead_s": 10.0}
"""It takes so long until a client sees that a broker stands still, and by then neither has given up."""
HASTY = {"heartbeat_s": 0.25, "stalled_s": 0.5, "suspect_s": 0.5, "dead_s": 1.0, "resume_s": 1.0}


@pytest.mark.parametrize(
    ("settings", "freezes_max"), [(PATIENT, 1), (HASTY, 10)], ids=["4s", "given_up"]
)
async def test_a_frozen_broker_loses_nothing_it_confirmed_and_stores_nothing_twice(
    tmp_path: Path, settings: dict[str, Any], freezes_max: int
) -> None:
    """Whether its client waits for it, or takes it for dead and sends all that was not confirmed again: as
    often as it takes until the broker had some of that already."""
    given_up, moments = settings is HASTY, Random(SEED)
    with await trio.to_thread.run_sync(broker, str(tmp_path)) as process:
        async with mesh.join(
            "shop", network_secret=SECRET, listen=ANY_PORT, zeroconf=False,
            seeds=[process.ready["endpoint"]], **settings,
        ) as node:  # fmt: skip
            connection = durable.connect(node, timeout=60)
            load = QueueLoad(connection, SEED, returns=RETURNS + freezes_max)
            await load.declare()

            async def intake() -> dict[str, Any]:
                return dict((await connection.statistics())["intake"])

            async def more_parts() -> None:
                parts = load.parts + moments.randrange(1, PARTS)
                await until(lambda: load.parts > parts, 60)

            def stands_still() -> bool:
                if given_up:
                    return not node.statistics().links
                return [one.state.value for one in node.members("broker")] != ["alive"]

            async with trio.open_nursery() as nursery:
                load.begin(nursery)
                for number in range(freezes_max):
                    if number and (await intake())["duplicates"]:
                        break
                    await more_parts()
                    process.freeze()
                    await until(stands_still, 20)
                    process.thaw()
                await more_parts()
                await load.finish()
                nursery.cancel_scope.cancel()
            await load.check()
            duplicates = (await intake())["duplicates"]
            assert duplicates or not given_up, "some came again, and were known"
