"""A vhost is closed while its disk hangs: that ends, and nobody else gets at the files meanwhile.

On a memory disk, in virtual time; what hangs does so in a real thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio

from durable.broker.auto_deletion import CLOSE_S
from durable.broker.consuming import serve_consumer
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.errors import StoreClosed
from durable.log.checkpoints import ROOT_NAME
from durable.log.faulty_disk import Faults, FaultyDirectory
from durable.log.memory_disk import Volume
from durable.protocol.calls import CONSUME, Hello
from tests.integration.durable.test_too_large import declare, publish, ready
from tests.power_cuts import CONFIG, run
from tests.vhosts import make_batch
from tests.waiting import PATIENCE_S, virtual_sleep

TOO_LONG_S = 100 * CLOSE_S


class Hanging:
    """Worker threads of which one does not come back before it is let go."""

    def __init__(self) -> None:
        self.hung, self.let_go = threading.Event(), threading.Event()
        self._raised: list[BaseException] = []

    def here(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.hung.set()
            self.let_go.wait()

    async def in_thread(
        self, call: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False
    ) -> None:
        self._thread = threading.Thread(target=self._run, args=(call, args), daemon=True)
        self._thread.start()
        assert self.hung.wait(PATIENCE_S)
        with trio.CancelScope(shield=not abandon_on_cancel):
            await virtual_sleep(TOO_LONG_S)
        raise AssertionError("waited for")

    def _run(self, call: Callable[..., Any], args: Any) -> None:
        try:
            call(*args)
        except BaseException as error:
            self._raised.append(error)

    def go_on(self) -> BaseException:
        """Why the call ends then."""
        self.let_go.set()
        self._thread.join(PATIENCE_S)
        return self._raised.pop()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_last_checkpoint_that_hangs_is_left(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: its thread was waited for, whatever time it had, so a broker did not end.

    When the disk comes back it writes no more: a vhost that is deleted may be declared again, in its place."""
    hanging, faults, volume = Hanging(), Faults(), Volume()

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs")
        await publish(running, make_batch(0, [b"a", b"b"], key="jobs"))
        running.log.calls.in_thread = hanging.in_thread
        if what == "file":
            faults.before_sync = hanging.here
        else:
            monkeypatch.setattr(FaultyDirectory, "sync_directory", hanging.here)

    run(volume, life, faults)
    assert volume.locked, "a thread is still in there"
    there = {*volume.seen}
    assert isinstance(hanging.go_on(), StoreClosed)
    assert {*volume.seen} == there
    assert ROOT_NAME not in there

    async def next_life(running: RunningVhost) -> None:
        assert ready(running) == {"jobs": 2}

    volume.locked = False  # The process has ended.
    monkeypatch.undo()
    faults.before_sync = None
    run(volume, next_life, faults)


class Leaving:
    """The tunnel of a consumer that leaves when it is told to."""

    caller, node, part_bytes_max = "shop", bytes(16), 1 << 16

    def __init__(self) -> None:
        self.leave = trio.Event()

    async def send(self, part: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def deserted(self) -> None:
        await trio.sleep_forever()

    async def each(self, *_: object) -> None:
        await self.leave.wait()


def test_a_consumer_whose_queue_goes_with_it_does_not_wait_for_ever_for_a_disk_that_hangs() -> None:
    """Found: a broker did not end, whatever else it does about that. Its queue goes all the same."""

    async def life(running: RunningVhost) -> None:
        await declare(running, "jobs", auto_delete=True)
        tunnel, peer = Leaving(), Peer("shop", running.vhost.registry.permissions, b"")
        hello = Hello(CONSUME, "/", {"queue": "jobs"})
        writer, back = cast("Any", running.log._commits._writer), trio.Event()
        in_thread = writer._in_thread

        async def hang(*args: Any, abandon_on_cancel: bool) -> None:
            await back.wait()
            await in_thread(*args)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_consumer, cast("Any", tunnel), hello, running, peer)
            await virtual_sleep(1)
            writer._in_thread = hang
            tunnel.leave.set()
            await virtual_sleep(1)
            began_s = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began_s <= CLOSE_S
        back.set()
        await virtual_sleep(CONFIG.idle_s)
        assert ready(running) == {}

    volume = Volume()
    run(volume, life)

    async def next_life(running: RunningVhost) -> None:
        assert ready(running) == {}

    run(volume, next_life)


def test_queues_of_a_connection_go_although_who_ends_them_is_cancelled() -> None:
    async def life(running: RunningVhost) -> None:
        names = ["a", "b", "c"]
        for name in names:
            await declare(running, name, exclusive=True)
        lanes = [running.vhost.registry.queue(name).lanes[0].id for name in names]
        async with running.change_writer.gate.exclusive():
            with trio.move_on_after(1):
                await running.delete_exclusive(lanes)
            assert set(ready(running)) == {*names}
        await virtual_sleep(3 * CONFIG.idle_s)
        assert ready(running) == {}

    run(Volume(), life)
