"""Receives what a producer publishes and checks every payload."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from bench.loops import Loop
from bench.roles.stage import Stage
from bench.roles.system_client import orders, play_client
from bench.sequence import Follower, Ring, ring_count
from bench.systems.system import Place, System
from bench.systems.topics import knock

TURN_NS = 20_000_000
KNOCK = knock(8)
CHUNK = 500
"""Payloads that are checked together."""
SILENCE_NS_MAX = 10_000_000_000


async def act(stage: Stage, system: System, place: Place, loop: Loop) -> None:
    taking = Taking(place.size_bytes)
    consumer = system.consumer(place, loop, taking.received)
    await consumer.setup()
    stage.ready()
    async for order in orders(stage, loop):
        if order["do"] == "listen":
            await loop.until(time.perf_counter_ns() + TURN_NS)
            stage.done(heard=taking.knocked)
            continue
        sent = order["start"] + order["count"]
        await taking.until(sent, loop)
        # The check for the last message is late by up to a turn, which must not count as the system's time.
        began_ns = time.perf_counter_ns()
        await consumer.settle()
        settling_ns = time.perf_counter_ns() - began_ns
        report = taking.follower.report(sent)
        stage.done(end_ns=taking.last_ns + settling_ns, reports=[report])
    await consumer.teardown()


class Taking:
    """The payloads received; a client may pass them on from a thread of its own."""

    def __init__(self, size_bytes: int) -> None:
        self.follower = Follower(Ring(size_bytes, ring_count(1, size_bytes)))
        self.knocked = 0
        self.last_ns = 0
        self._chunk: list[bytes] = []
        self._lock = threading.Lock()

    async def received(self, payloads: Sequence[bytes]) -> None:
        if not self.last_ns and payloads[0][:8] == KNOCK:
            # Knocks, by which both sides learn of each other, are sent only before the first message.
            messages = [payload for payload in payloads if payload[:8] != KNOCK]
            self.knocked += len(payloads) - len(messages)
            if not messages:
                return
            payloads = messages
        with self._lock:
            self._chunk += payloads
            self.last_ns = time.perf_counter_ns()
            if len(self._chunk) >= CHUNK:
                self._check()

    def check(self) -> None:
        with self._lock:
            self._check()

    def _check(self) -> None:
        self.follower.take(self._chunk)
        self._chunk = []

    async def until(self, count: int, loop: Loop) -> None:
        """Wait until `count` were received, or none has been for SILENCE_NS_MAX."""
        began_ns = time.perf_counter_ns()
        while True:
            await loop.until(time.perf_counter_ns() + TURN_NS)
            self.check()
            quiet_ns = time.perf_counter_ns() - max(self.last_ns, began_ns)
            if self.follower.received >= count or quiet_ns > SILENCE_NS_MAX:
                return


if __name__ == "__main__":
    play_client(act)
