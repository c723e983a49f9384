"""A broker in a process of its own, for tests that kill it: small segments, everything often.

Reads one JSON object of arguments, prints `{"endpoint": ..., "records": ...}` when it serves.
"""

from __future__ import annotations

import json
import sys

import trio

import durable
from tests.processes import SECRET, Process

CONFIG = durable.BrokerConfig(
    log=durable.LogConfig(
        segment_bytes=1 << 18, reserve_bytes=1 << 14, free_bytes_min=0, compaction_share_max=0.5
    ),
    idle_s=0.05, checkpoint_bytes=1 << 14, recent_bytes=1 << 16,
)  # fmt: skip


def broker(data: str, listen: str = "tcp://127.0.0.1:0") -> Process:
    """`.ready["endpoint"]` is its address, `.ready["records"]` what it read at its start."""
    return Process("tests.broker", {"data": data, "listen": listen})


async def serve(data: str, listen: str) -> None:
    async with durable.serve(
        data, config=CONFIG, network_secret=SECRET, listen=listen, zeroconf=False
    ) as running:
        assert running.node is not None
        records = sum(one.log.report.records for one in running.all_hosted())
        ready = {"endpoint": running.node.endpoints[0], "records": records}
        print(json.dumps(ready), flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(lambda: serve(**json.loads(sys.argv[1])))
