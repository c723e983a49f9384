"""One broker over a new directory, and the programs that use it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.plan import Scale
    from bench.processes import Role, Troupe

CLUSTER = "broker"
SETTLE_S = 2.0


class Setting:
    """The roles of one case. The troupe ends them; the directory remains when the broker is restarted."""

    def __init__(self, troupe: Troupe, data: str) -> None:
        self._troupe, self.data = troupe, data
        self._network = Network()
        self.broker = self.start_broker()

    def start_broker(self) -> Role:
        """Start a broker over the directory as it is, on a new port; its `ready` tells how long opening took."""
        settings = self._network.node(CLUSTER, seeds=[], data=str(Path(self.data) / "store"))
        return self._troupe.start("durable_broker", settings)

    def restart_broker(self, *, killed: bool = False, checkpoints: bool = True) -> Role:
        """Restart the broker. It gets a new endpoint, so all connected programs have to be restarted, too.

        Args:
            killed: kill it first, which leaves no time for a last checkpoint.
            checkpoints: if False, all checkpoints are deleted first, so the whole log is read.
        """
        if killed:
            os.kill(self.broker.pid, signal.SIGKILL)
        self._troupe.end(self.broker)
        if not checkpoints:
            for log in Path(self.data).glob("store/vhosts/*/log"):
                (log / "checkpoint").unlink()
                shutil.rmtree(log / "queues")
        self.broker = self.start_broker()
        return self.broker

    def start(self, role: str, *, wait: bool = True, **settings: Any) -> Role:
        """Start a program that knows the broker. Without `wait`, call `hear` before giving it an order."""
        seeds = [self.broker.ready["endpoint"]]
        cluster = f"bench-{role}".replace("_", "-")
        node = self._network.node(cluster, seeds=seeds, **settings)
        return self._troupe.start(role, node, wait=wait)

    def start_member(self, role: str, cluster: str, *seeds: str, **settings: Any) -> Role:
        """Start a role of the mesh's bench, which does not know the broker."""
        return self._troupe.start(role, self._network.node(cluster, seeds=list(seeds), **settings))

    def rss_bytes(self, scale: Scale, settle_s: float = SETTLE_S) -> int:
        """Return the broker's memory, after it has had `settle_s` to become idle."""
        time.sleep(scale.seconds(settle_s))
        return int(self.broker.ask("usage")["rss_bytes"])


@contextmanager
def serving(troupe: Troupe) -> Iterator[Setting]:
    """Run a broker on a directory of its own, and end it before the directory is deleted: it writes until it ends."""
    with tempfile.TemporaryDirectory(prefix="bench-durable-", ignore_cleanup_errors=True) as data:
        try:
            setting = Setting(troupe, data)
            yield setting
            troupe.end(setting.broker)
        except BaseException as error:
            troupe.abandon(error)
            raise


def queue_names(count: int) -> list[str]:
    return [f"bench.{number}" for number in range(count)]
