"""A broker in a process of its own, for tests that kill it: small segments, frequent checkpoints and upkeep.

Reads a JSON object of arguments, and prints `{"endpoint": ..., "node": ..., "records": ..., "pid": ...}` when
it serves. Without arguments it prints `{}`, and then forks such a broker for each line of JSON with
arguments.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import trio

import durable
import durable.broker.broker  # Loaded by `serve`; here once for all forks.
from tests.loopback import ANY_PORT
from tests.processes import SECRET, Process

CONFIG = durable.BrokerConfig(
    log=durable.LogConfig(
        segment_bytes=1 << 18, reserve_bytes=1 << 14, free_bytes_min=0, compaction_share_max=0.5
    ),
    idle_s=0.05, checkpoint_bytes=1 << 14, checkpoint_records=300, recent_bytes=1 << 19,
    capture_bytes=1 << 14,
)  # fmt: skip


def broker(data: str, listen: str = ANY_PORT) -> Process:
    """Start a broker; `.ready` has its address, `endpoint`, and the count of records that it read, `records`."""
    return Process("tests.broker", {"data": data, "listen": listen})


class Broker:
    """A broker that is killed and started again on its directory and port, without the second that loading takes."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._forks = Process("tests.broker", {})
        self.ready: dict[str, Any] = {"endpoint": ANY_PORT}
        self._pid: int | None = None

    def begin(self, seeds: Sequence[str] = ()) -> None:
        """Start it. `seeds`: nodes to link to at once; by themselves these would try its address only now and then."""
        listen = self.ready["endpoint"]
        self.ready = self._forks.call("serve", data=self._data, listen=listen, seeds=list(seeds))
        self._pid = self.ready["pid"]

    def kill(self) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None

    def close(self) -> None:
        self.kill()
        self._forks.close()


async def serve(data: str, listen: str, seeds: Sequence[str] = ()) -> None:
    async with durable.serve(
        data, config=CONFIG, network_secret=SECRET, listen=listen, seeds=seeds, zeroconf=False
    ) as running:
        assert running.node is not None
        records = sum(one.log.report.records for one in running.all_hosted())
        node = running.node
        ready = {
            "endpoint": node.endpoints[0], "node": node.id.hex(), "records": records,
            "pid": os.getpid(),
        }  # fmt: skip
        print(json.dumps(ready), flush=True)
        await trio.sleep_forever()


def fork_each() -> None:
    """Fork brokers one after the other, each when the one before has ended."""
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        if not (pid := os.fork()):
            try:
                trio.run(serve, told["data"], told["listen"], told["seeds"])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    if arguments := json.loads(sys.argv[1]):
        trio.run(lambda: serve(**arguments))
    else:
        fork_each()
