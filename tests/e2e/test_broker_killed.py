"""SIGKILL of a broker under load, again and again, against the ledgers of its client: of queues, of their
dead letters, and of streams with the cursors of their readers (tests/stream_load.py)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import trio

import durable
import mesh
from tests.broker import Broker
from tests.loopback import ANY_PORT
from tests.processes import SECRET
from tests.queue_load import QueueLoad
from tests.stream_load import StreamLoad
from tests.waiting import until

KILLS, SEED = 50, 50
DELAY_S = 0.02
"""Up to so long after a confirm a broker is killed: the next parts are at any point of their way then."""


class Killing:
    """Of one broker under two loads."""

    def __init__(
        self, broker: Broker, node: mesh.Node, load: QueueLoad, streams: StreamLoad
    ) -> None:
        self._broker, self._node = broker, node
        self._load, self._streams = load, streams
        self._moments = Random(SEED)

    async def kill(self, number: int) -> None:
        """When more has been confirmed, at a random moment, or right when a part of a stream is, or a cursor."""
        load, streams = self._load, self._streams
        parts, of_stream = load.parts + self._moments.randrange(1, 40), streams.parts + 1
        await until(lambda: load.parts >= parts and streams.parts >= of_stream, 60)
        with trio.fail_after(60):
            await self._moment(number)
        self._broker.kill()
        streams.outage_begins()
        streams.tick()
        await trio.to_thread.run_sync(self._broker.begin, self._node.endpoints)
        streams.tick()
        await streams.outage_ends(bytes.fromhex(self._broker.ready["node"]))

    async def _moment(self, number: int) -> None:
        if number % 3 == 0:
            await trio.sleep(self._moments.uniform(0, DELAY_S))
        elif number % 3 == 1:
            await self._streams.confirmed.wait()
        else:
            await self._streams.kept.wait()


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_broker_killed_50_times_loses_nothing_it_confirmed(tmp_path: Path) -> None:
    with closing(Broker(str(tmp_path))) as broker:
        await trio.to_thread.run_sync(broker.begin)
        async with mesh.join(
            "shop", network_secret=SECRET, listen=ANY_PORT, seeds=[broker.ready["endpoint"]],
            zeroconf=False,
        ) as node:  # fmt: skip
            connection = durable.connect(node, timeout=60)
            load = QueueLoad(connection, seed=SEED)
            streams = StreamLoad(node, connection, seed=SEED)
            await load.declare()
            await streams.declare()
            killing = Killing(broker, node, load, streams)
            async with trio.open_nursery() as nursery:
                load.begin(nursery)
                streams.begin(nursery)
                for number in range(KILLS):
                    await killing.kill(number)
                await load.finish()
                await streams.finish()
                nursery.cancel_scope.cancel()
            # All has come, and is there once: nobody is killed any more.
            await load.check()
            await streams.check()
    assert load.unsettled, "some were settled in vain"
    assert len(load.kept.confirmed) > KILLS, "there was a load"
    segments = await trio.to_thread.run_sync(lambda: list(tmp_path.rglob("msgs.*")))
    # Most hold something that is kept, of the streams or of the queue that nobody reads.
    assert max(int(one.suffix[1:]) for one in segments) > len(segments), "some are given back"
