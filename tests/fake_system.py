"""A system with known delays, with which the open load of the bench is tested.

There are no processes, and no real time passes: `VirtualLoop` is the loop and the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine
from typing import Any

from bench.loops import Loop
from bench.loops.loop import Receive, T, drive, run_driven
from bench.systems.system import Received


class VirtualLoop(Loop):
    """A loop in which time passes only while somebody waits; events due meanwhile are called in order."""

    def __init__(self, start_ns: int = 1_000_000_000) -> None:
        self.now_ns = start_ns
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def clock(self) -> int:
        return self.now_ns

    def at(self, due_ns: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (due_ns, self._count, event))

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return run_driven(main)

    async def until(self, due_ns: int) -> None:
        due_ns = max(due_ns, self.now_ns)
        while self._events and self._events[0][0] <= due_ns:
            when_ns, _, event = heapq.heappop(self._events)
            self.now_ns = max(self.now_ns, when_ns)
            event()
        self.now_ns = max(self.now_ns, due_ns)

    def watch(self, fd: int, receive: Receive) -> None:
        raise NotImplementedError("nothing here has a descriptor")


class FakeRequester:
    """Answers request k after `delay_ns(k)`, but not during the stall, given by its start and end.

    Args:
        cost_ns: time that sending one request takes, for a load that cannot keep its schedule.
        answers: how often request k is answered; if negative, the answers are damaged.
    """

    def __init__(
        self, loop: VirtualLoop, replied: Received, delay_ns: Callable[[int], int], *,
        stall_ns: tuple[int, int] = (0, 0), cost_ns: int = 0,
        answers: Callable[[int], int] = lambda _: 1,
    ) -> None:  # fmt: skip
        self._loop, self._replied, self._delay_ns = loop, replied, delay_ns
        self._stall_ns, self._cost_ns, self._answers = stall_ns, cost_ns, answers

    async def setup(self) -> None: ...

    async def request(self, payload: bytes) -> None:
        number = int.from_bytes(payload[:8], "little")
        self._loop.now_ns += self._cost_ns
        due_ns = self._loop.now_ns + self._delay_ns(number)
        start_ns, end_ns = self._stall_ns
        if start_ns <= due_ns < end_ns:
            due_ns = end_ns
        answers = self._answers(number)
        reply = payload if answers >= 0 else payload[:-1]
        for _ in range(abs(answers)):
            self._loop.at(due_ns, lambda: drive(self._replied([reply])))

    async def teardown(self) -> None: ...
