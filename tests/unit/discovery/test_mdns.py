"""MdnsFinder against a network in memory: no zeroconf, no threads, no real time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from discovery.errors import AnnouncementTooLarge, ResponderError
from discovery.mdns import MdnsFinder, MdnsSettings
from discovery.txt import decode_txt, encode_txt
from tests.waiting import virtual_sleep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from discovery.responder import OnChange


class FakeNetwork:
    """Everything that was multicast, and the one responder on it."""

    def __init__(self) -> None:
        self.records: dict[str, bytes | None] = {}
        self.log: list[str] = []
        self.echo = True
        self.open_fails = 0
        self.publish_fails = 0
        self.close_hangs = False
        self.protected: list[bool] = []
        """Whether Ctrl-C would be raised elsewhere: as the responder opens, and as it closes."""
        self.on_change: OnChange = lambda instance, present: None

    async def open(
        self, instance: str, interfaces: Sequence[str] | None, on_change: OnChange
    ) -> FakeResponder:
        if self.open_fails:
            self.open_fails -= 1
            raise ResponderError("No such device")
        self.log.append("open")
        self.protected.append(trio.lowlevel.currently_ki_protected())
        self.on_change = on_change
        return FakeResponder(self, instance)

    def hear(self, instance: str, announcement: bytes | None) -> None:
        self.records[instance] = None if announcement is None else encode_txt(announcement)
        self.on_change(instance, True)

    def goodbye(self, instance: str) -> None:
        del self.records[instance]
        self.on_change(instance, False)


class FakeResponder:
    def __init__(self, network: FakeNetwork, instance: str) -> None:
        self.network, self.instance = network, instance

    async def publish(self, txt: bytes, port: int) -> None:
        if self.network.publish_fails:
            self.network.publish_fails -= 1
            raise ResponderError("loop blocked")
        self.network.log.append(f"publish {decode_txt(txt)!r} {port}")
        if self.network.echo:
            self.network.on_change(self.instance, True)
        await virtual_sleep(0.45)

    async def withdraw(self) -> None:
        self.network.log.append("withdraw")
        await virtual_sleep(0.25)

    def instances(self) -> list[str]:
        return list(self.network.records)

    def txt(self, instance: str) -> bytes | None:
        return self.network.records.get(instance)

    def query(self, instance: str) -> None:
        self.network.log.append(f"ask {instance}")

    async def follow_interfaces(self) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        self.network.protected.append(trio.lowlevel.currently_ki_protected())
        if self.network.close_hangs:
            await trio.sleep_forever()
        await virtual_sleep(0.25)
        self.network.log.append("close")


class World:
    def __init__(self, settings: MdnsSettings | None = None) -> None:
        self.network = FakeNetwork()
        self.finder = MdnsFinder("ab12", settings=settings, open_responder=self.network.open)
        self.found: list[bytes] = []

    def take(self) -> list[bytes]:
        found, self.found = self.found, []
        return found

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                self.finder.run, lambda found: self.found.append(found.announcement)
            )
            yield
            nursery.cancel_scope.cancel()


async def test_a_new_instance_is_reported_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.running():
        world.network.hear("cd", b"one")
        await wait_all_tasks_blocked()
        world.network.hear("cd", b"one")
        await virtual_sleep(60)
        assert world.take() == [b"one"]
        assert world.finder.statistics().instances == 1


async def test_an_update_is_reported(autojump_clock: MockClock) -> None:
    world = World()
    async with world.running():
        for announcement in (b"one", b"two", b"one"):
            world.network.hear("cd", announcement)
            await wait_all_tasks_blocked()
        assert world.take() == [b"one", b"two", b"one"]


async def test_after_a_goodbye_the_same_content_is_new(autojump_clock: MockClock) -> None:
    world = World()
    async with world.running():
        world.network.hear("cd", b"one")
        await wait_all_tasks_blocked()
        world.network.goodbye("cd")
        await wait_all_tasks_blocked()
        assert world.finder.statistics().instances == 0
        world.network.hear("cd", b"one")
        await wait_all_tasks_blocked()
        world.network.goodbye("cd")
        world.network.hear("cd", b"one")  # both before we look once
        await wait_all_tasks_blocked()
        assert world.take() == [b"one"] * 3


async def test_our_own_instance_is_never_reported(autojump_clock: MockClock) -> None:
    world = World()
    await world.finder.announce(b"me", 9000)
    async with world.running():
        world.network.hear("ab12", b"me")
        await virtual_sleep(60)
        assert world.take() == []


async def test_records_of_others_under_our_name_are_counted_and_ignored(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.running():
        world.network.records["cd"] = b"\x05other"
        world.network.on_change("cd", True)
        await virtual_sleep(60)
        assert world.take() == []
        assert world.finder.statistics().unreadable == 1


async def test_an_announcement_that_got_lost_is_asked_for(autojump_clock: MockClock) -> None:
    world = World(MdnsSettings(queries_max=2))
    async with world.running():
        for instance in ("c", "d", "e"):
            world.network.hear(instance, None)
        await wait_all_tasks_blocked()
        assert world.network.log == ["open", "ask c", "ask d"]
        await virtual_sleep(10.5)
        assert world.network.log == ["open", "ask c", "ask d", "ask c", "ask d"]


async def test_dropped_changes_are_made_up_by_the_relist(autojump_clock: MockClock) -> None:
    world = World(MdnsSettings(instances_max=2))
    async with world.running():
        for instance in ("c", "d", "e"):
            world.network.hear(instance, instance.encode())
        await wait_all_tasks_blocked()
        assert world.take() == [b"c", b"d"]
        assert world.finder.statistics().dropped == 1
        del world.network.records["c"]  # its goodbye was dropped, too
        await virtual_sleep(10.5)
        assert world.take() == [b"e"]
        assert world.finder.statistics().instances == 2


async def test_announcements_replace_each_other_and_end_with_a_goodbye(
    autojump_clock: MockClock,
) -> None:
    world = World()
    await world.finder.announce(b"one", 9000)
    async with world.running():
        await wait_all_tasks_blocked()
        await world.finder.announce(b"two", 9000)  # while "one" is still being sent
        await world.finder.announce(b"three", 9001)
        await virtual_sleep(1)
        await world.finder.withdraw()
        assert world.network.log[-1] == "withdraw"
        await virtual_sleep(1)
        await world.finder.announce(b"three", 9001)
        await virtual_sleep(1)
    three = "publish b'three' 9001"
    assert world.network.log == [
        *("open", "publish b'one' 9000", three, "withdraw", three, "close"),
    ]


async def test_too_large_is_refused_and_the_old_one_stays(autojump_clock: MockClock) -> None:
    world = World()
    with pytest.raises(AnnouncementTooLarge):
        await world.finder.announce(bytes(1301), 9000)
    async with world.running():
        await virtual_sleep(1)
    assert world.network.log == ["open", "close"]


async def test_withdraw_without_run_returns(autojump_clock: MockClock) -> None:
    await World().finder.withdraw()


async def test_no_multicast_at_start_is_a_problem_that_passes(autojump_clock: MockClock) -> None:
    world = World()
    world.network.open_fails = 2
    await world.finder.announce(b"me", 9000)
    async with world.running():
        assert world.finder.problem() == "no multicast on this machine: No such device"
        await virtual_sleep(59)
        assert world.network.log == []
        await virtual_sleep(2)
        assert world.network.log == ["open", "publish b'me' 9000"]
        assert world.finder.problem() is None


async def test_not_hearing_ourselves_is_a_problem_and_gets_new_sockets(
    autojump_clock: MockClock,
) -> None:
    world = World()
    world.network.echo = False
    await world.finder.announce(b"me", 9000)
    async with world.running():
        await virtual_sleep(0.9)
        assert world.finder.problem() is None
        await virtual_sleep(0.2)
        assert "our own announcement did not come back within 1.0 s" in (
            world.finder.problem() or ""
        )
        world.network.hear("cd", b"one")
        await virtual_sleep(1)
        assert world.take() == [b"one"], "deaf to ourselves only"
        world.network.echo = True
        await virtual_sleep(30)
        assert world.finder.problem() is None
    cycle = ["open", "publish b'me' 9000", "close"]
    assert world.network.log == cycle * 2


async def test_a_late_echo_ends_the_problem(autojump_clock: MockClock) -> None:
    world = World()
    world.network.echo = False
    await world.finder.announce(b"me", 9000)
    async with world.running():
        await virtual_sleep(5)
        assert world.finder.problem() is not None
        world.network.on_change("ab12", True)
        await virtual_sleep(60)
        assert world.finder.problem() is None
    assert world.network.log.count("open") == 1


async def test_an_echo_that_comes_while_the_loop_is_late_is_no_problem(
    autojump_clock: MockClock,
) -> None:
    """Found: a program that took longer than `echo_s` for its own start was told that this machine has no multicast."""
    world = World(settings := MdnsSettings())
    world.network.echo = False
    await world.finder.announce(b"me", 9000)
    async with world.running():
        await wait_all_tasks_blocked()
        autojump_clock.jump(10 * settings.echo_s)
        for turn in range(20):
            if turn == 5:  # Between zeroconf's thread and ours there are some.
                world.network.on_change("ab12", True)
            assert world.finder.problem() is None
            await trio.lowlevel.checkpoint()


async def test_nothing_announced_or_withdrawn_at_once_is_no_problem(
    autojump_clock: MockClock,
) -> None:
    world = World()
    world.network.echo = False
    async with world.running():
        await virtual_sleep(60)
        assert world.finder.problem() is None
        await world.finder.announce(b"me", 9000)
        await virtual_sleep(0.1)
        await world.finder.withdraw()
        await virtual_sleep(60)
        assert world.finder.problem() is None


async def test_a_failure_of_zeroconf_is_a_problem_and_retried(autojump_clock: MockClock) -> None:
    world = World()
    world.network.publish_fails = 1
    await world.finder.announce(b"me", 9000)
    async with world.running():
        await virtual_sleep(1)
        assert world.finder.problem() == "zeroconf failed: loop blocked"
        await virtual_sleep(30)
        assert world.finder.problem() is None
    assert world.network.log == ["open", "close", "open", "publish b'me' 9000", "close"]


async def test_closing_is_bounded(autojump_clock: MockClock) -> None:
    world = World()
    world.network.close_hangs = True
    async with world.running():
        await wait_all_tasks_blocked()
        start_s = trio.current_time()
    assert trio.current_time() - start_s == pytest.approx(3.0)


async def test_ctrl_c_cannot_come_between_opening_and_closing(autojump_clock: MockClock) -> None:
    """Found by reading: a responder could be left open, with its threads, and without a goodbye."""
    world = World()
    async with world.running():
        await wait_all_tasks_blocked()
    assert world.network.protected == [True, True]


def test_an_instance_must_be_a_dns_label() -> None:
    with pytest.raises(AssertionError):
        MdnsFinder("Not.A.Label")
