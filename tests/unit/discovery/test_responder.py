"""The responder follows the interfaces of this machine, with a fake machine and a fake zeroconf."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing
import zeroconf

from discovery import responder
from discovery.errors import ResponderError
from discovery.responder import ZeroconfResponder, open_zeroconf
from tests.waiting import PATIENCE_S

LOOPBACK = {"127.0.0.1": 1}


class FakeBrowser:
    def __init__(self, *_: object, **__: object) -> None: ...
    def cancel(self) -> None: ...


class FakeZeroconf:
    done = False

    def __init__(self, *, interfaces: list[str], **_: object) -> None:
        self.used = [interfaces]
        self.closes: list[Exception | None] = []
        """What becomes of each attempt to close."""

    def close(self) -> None:
        if error := self.closes.pop(0):
            raise error

    def update_interfaces(self, interfaces: list[str]) -> None:
        self.used.append(interfaces)


class Machine:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = {"10.0.0.1": 2, **LOOPBACK}
        self.deaf: set[str] = set()
        monkeypatch.setattr(zeroconf, "Zeroconf", FakeZeroconf)
        monkeypatch.setattr(zeroconf, "ServiceBrowser", FakeBrowser)
        monkeypatch.setattr(responder, "address_indexes", lambda: self.here)
        monkeypatch.setattr(responder, "multicast_addresses", self.usable)

    def usable(self, candidates: dict[str, int]) -> tuple[list[str], list[str]]:
        return [one for one in candidates if one in self.here and one not in self.deaf], []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def opened(given: list[str] | None = None) -> tuple[ZeroconfResponder, list[list[str]]]:
    one: Any = ZeroconfResponder("ab12", given, lambda *_: None)
    return one, one._zeroconf.used


async def test_interfaces_that_come_and_go_are_followed(machine: Machine) -> None:
    one, used = opened()
    await one.follow_interfaces()
    assert used == [["10.0.0.1", "127.0.0.1"]]
    machine.here = LOOPBACK
    await one.follow_interfaces()
    assert used.pop() == ["127.0.0.1"]
    machine.here = {"10.0.0.2": 3, **LOOPBACK}
    await one.follow_interfaces()
    assert used.pop() == ["10.0.0.2", "127.0.0.1"]
    assert used == [["10.0.0.1", "127.0.0.1"]], "one update for each change"


async def test_an_interface_that_has_replaced_one_of_the_same_address_is_followed(
    machine: Machine,
) -> None:
    """Found: between two looks nothing seemed to have changed, and nothing was heard on it any more."""
    one, used = opened()
    machine.here = {"10.0.0.1": 3, **LOOPBACK}
    await one.follow_interfaces()
    assert used[1:] == [["127.0.0.1"], ["10.0.0.1", "127.0.0.1"]]
    await one.follow_interfaces()
    assert len(used) == 3, "once"


async def test_of_interfaces_that_were_given_no_others_are_used(machine: Machine) -> None:
    one, used = opened(["10.0.0.1", "127.0.0.1"])
    machine.here = {"10.0.0.2": 4, "10.0.0.1": 3, **LOOPBACK}
    await one.follow_interfaces()
    assert used[1:] == [["127.0.0.1"], ["10.0.0.1", "127.0.0.1"]]


async def test_an_interface_that_can_be_used_later_is_used_then(machine: Machine) -> None:
    """Found: only a change of the addresses was one, so that it was never used."""
    machine.deaf = {"10.0.0.1"}
    one, used = opened()
    await one.follow_interfaces()
    assert used == [["127.0.0.1"]]
    machine.deaf = set()
    await one.follow_interfaces()
    assert used[1:] == [["10.0.0.1", "127.0.0.1"]]
    machine.deaf = {"10.0.0.1", "127.0.0.1"}  # As without a descriptor to try it with.
    await one.follow_interfaces()
    assert len(used) == 2, "what is in use remains in use"


@pytest.mark.parametrize("here", [LOOPBACK, {"10.0.0.1": 3, **LOOPBACK}], ids=["gone", "replaced"])
async def test_without_an_interface_that_it_had_a_new_responder_is_needed(
    machine: Machine, here: dict[str, int]
) -> None:
    """Found: it went on with sockets that heard nothing, and reported no problem."""
    one, _ = opened(["10.0.0.1"])
    machine.here = here
    with pytest.raises(ResponderError, match="none of its interfaces is left"):
        await one.follow_interfaces()


@pytest.mark.parametrize("error", [zeroconf.EventLoopBlocked(), TimeoutError()])
async def test_what_was_closed_halfway_is_closed_again(machine: Machine, error: Exception) -> None:
    """Found: after a pause of the process its thread stayed, and it went on answering for a node that had left."""
    one: Any = opened()[0]
    one._zeroconf.closes = [error, None]
    await one.close()
    assert one._zeroconf.closes == []


async def test_what_cannot_be_closed_is_an_error(machine: Machine) -> None:
    one: Any = opened()[0]
    one._zeroconf.closes = [zeroconf.EventLoopBlocked(), TimeoutError("late")]
    with pytest.raises(ResponderError, match="late"):
        await one.close()
    assert one._zeroconf.closes == []


class SlowResponder:
    """Opens when it is told to, and tells when it is closed."""

    def __init__(self) -> None:
        self.may_open, self.closed = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> SlowResponder:
        self.may_open.wait()
        return self

    def close_now(self) -> None:
        self.closed.set()


async def test_what_does_not_open_is_given_up_and_closed_if_it_opens_late(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Found: for lack of a descriptor zeroconf waited for ever, and the node could not even be ended."""
    monkeypatch.setattr(responder, "ZeroconfResponder", slow := SlowResponder())
    try:
        with pytest.raises(ResponderError, match="zeroconf did not start within 3 s"):
            await open_zeroconf("ab12", None, lambda *_: None)
    finally:
        slow.may_open.set()
    assert slow.closed.wait(PATIENCE_S)


async def test_what_hangs_while_it_opens_keeps_one_thread_however_often_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Found: each attempt kept one of the threads that all share, logs as well, until there was none."""
    count, began = 0, threading.Event()

    def hang(*_: object) -> SlowResponder:
        nonlocal count
        count += 1
        began.set()
        return slow()

    slow = SlowResponder()
    monkeypatch.setattr(responder, "ZeroconfResponder", hang)
    common = trio.to_thread.current_default_thread_limiter()
    try:
        for _ in range(3):
            with pytest.raises(ResponderError, match="zeroconf did not start"):
                await open_zeroconf("ab12", None, lambda *_: None)
        assert began.wait(PATIENCE_S)
        assert count == 1
        assert common.borrowed_tokens == 0
    finally:
        slow.may_open.set()
    assert slow.closed.wait(PATIENCE_S)


async def test_what_opens_while_it_is_cancelled_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responder, "ZeroconfResponder", slow := SlowResponder())
    slow.may_open.set()
    with trio.CancelScope() as scope:
        scope.cancel()
        opened: Any = await open_zeroconf("ab12", None, lambda *_: None)
    assert opened is slow
