"""A broker in a process of its own, for tests that kill it: small segments, everything often.

Reads one JSON object of arguments, prints `{"endpoint": ..., "node": ..., "records": ..., "pid": ...}` when it
serves. Without arguments it prints `{}`, then for each line of JSON with arguments forks such a broker.
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
import durable.broker.broker  # What `serve` would load: once for all that are forked.
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
    """`.ready["endpoint"]` is its address, `.ready["records"]` what it read at its start."""
    return Process("tests.broker", {"data": data, "listen": listen})


class Broker:
    """Killed, and begun again on its directory and port, without the second that loading takes."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._forks = Process("tests.broker", {})
        self.ready: dict[str, Any] = {"endpoint": ANY_PORT}
        self._pid: int | None = None

    def begin(self, seeds: Sequence[str] = ()) -> None:
        """Seeds: whom it is to link with at once, for they try it now and then only."""
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
    """One after the other: the next one when the one before it has ended."""
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
