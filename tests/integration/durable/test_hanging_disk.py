"""A vhost is made, opened or deleted while its disk hangs: the broker closes nevertheless, and nothing is left by
halves.

On a real directory, in real threads, which hang until they are let go.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from durable.broker import auto_deletion, vhosts
from durable.broker.collecting import Collector
from durable.broker.directory import check_unused, remove_vhost, vhost_path
from durable.broker.vhosts import Vhosts
from durable.errors import StoreInUse
from durable.log.encryption import Encryption
from durable.log.real_disk import RealDirectory, RealDisk
from tests.brokers import SMALL, client, serving
from tests.integration.durable.test_too_large import declare, publish, ready
from tests.vhosts import make_batch
from tests.waiting import PATIENCE_S, until

IMPATIENT = replace(SMALL, log=replace(SMALL.log, commit_s_max=0.05))


class Hanging:
    """The first of some calls in worker threads does not come back before it is let go."""

    def __init__(self) -> None:
        self.hung, self.let_go = threading.Event(), threading.Event()

    def here(self) -> None:
        in_worker = threading.current_thread() is not threading.main_thread()
        if in_worker and not self.hung.is_set():
            self.hung.set()
            self.let_go.wait(PATIENCE_S)

    def before(self, patch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        """Every call of this method."""
        method = getattr(kind, name)

        def call(*args: Any) -> Any:
            self.here()
            return method(*args)

        patch.setattr(kind, name, call)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    for where in (vhosts, auto_deletion):
        monkeypatch.setattr(where, "CLOSE_S", 0.05)
    one = Hanging()
    yield one
    one.let_go.set()


def opened(path: Path, config: Any = SMALL) -> Vhosts:
    return Vhosts(path, config, Encryption(None), Collector())


async def unused(path: Path) -> bool:
    try:
        check_unused(path)
    except StoreInUse:
        return False
    return True


async def opens(path: Path) -> bool:
    """Not while a thread that was left is making, or opening, what is in there."""
    try:
        async with opened(path):
            return True
    except (StoreInUse, OSError):
        return False


def files(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*")}


@pytest.mark.parametrize("at", ["rename", "sync_directory", "unlink", "remove_directory"])
async def test_a_broker_closes_while_a_deletion_hangs_and_nobody_finds_half_of_it(
    tmp_path: Path, hanging: Hanging, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, at: str,
) -> None:  # fmt: skip
    """Found: the thread was waited for without end, and who started meanwhile removed what it was at."""
    data, found = tmp_path / "data", tmp_path / "found"

    def remove(*args: Any) -> None:
        hanging.before(monkeypatch, RealDirectory, at)
        remove_vhost(*args)

    async with opened(data) as one:
        await one.create("billing")
        await declare(one.get("billing"), "jobs")
        await publish(one.get("billing"), make_batch(0, [b"a"], key="jobs"))
    with trio.fail_after(PATIENCE_S / 2):
        async with opened(data, IMPATIENT) as one:
            monkeypatch.setattr(vhosts, "remove_vhost", remove)
            one.delete("billing")
            await until(hanging.hung.is_set)
    assert "vhost billing is not deleted yet, because the disk hangs" in caplog.text
    assert f"{vhost_path(data, '/') / 'log'} stays open" in caplog.text
    before = files(data)
    with pytest.raises(StoreInUse):
        async with opened(data):
            raise AssertionError("somebody is in there")
    assert files(data) == before

    # What is found when this process, and its lock, are gone.
    shutil.copytree(data, found)
    monkeypatch.undo()
    async with opened(found) as one:
        if at == "rename":
            assert ready(one.get("billing")) == {"jobs": 1}
        else:
            assert one.names == ["/"]
            assert not vhost_path(found, "billing").exists()

    hanging.let_go.set()
    await until(lambda: unused(data))
    async with opened(data) as one:
        assert one.names == ["/"]
        assert not vhost_path(data, "billing").exists()


async def test_a_broker_that_was_late_as_it_closed_ends_the_deletion_under_way(
    tmp_path: Path, hanging: Hanging, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock,
) -> None:  # fmt: skip
    """Found by reading: a process that was stopped for 10 s said that the disk hangs, and left it to the next start."""

    def remove(*args: Any) -> None:
        hanging.here()
        remove_vhost(*args)

    monkeypatch.setattr(vhosts, "remove_vhost", remove)
    mock_clock.rate = 1.0
    closes = trio.Event()
    async with trio.open_nursery() as nursery:

        async def delete() -> None:
            async with opened(tmp_path) as one:
                await one.create("billing")
                one.delete("billing")
                await until(hanging.hung.is_set)
                mock_clock.rate = 0.0
                closes.set()
            assert not vhost_path(tmp_path, "billing").exists()

        nursery.start_soon(delete)
        await closes.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(2 * auto_deletion.CLOSE_S)
        await wait_all_tasks_blocked()
        hanging.let_go.set()
    assert "not deleted yet" not in caplog.text


async def test_files_of_a_deleted_vhost_stay_until_what_hangs_in_them_is_back(
    tmp_path: Path,
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found: a new one of its name was made meanwhile, and got files of the old one when the disk came back: then it
    could not be opened, and where one of them could not be made, a file of the new one's would have gone."""
    removed_in_time: list[bool] = []

    def remove(*args: Any) -> None:
        removed_in_time.append(hanging.let_go.is_set())
        remove_vhost(*args)

    monkeypatch.setattr(vhosts, "remove_vhost", remove)
    async with opened(tmp_path, IMPATIENT) as one:
        await one.create("billing")
        with monkeypatch.context() as patch:
            hanging.before(patch, RealDisk, "free_bytes")
            await declare(one.get("billing"), "jobs")
            await until(hanging.hung.is_set)  # To make what is kept ahead.
        _, gone = one.delete("billing")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.create, "billing")
            await until(lambda: "stays open" in caplog.text)
            hanging.let_go.set()
            await gone()
        assert removed_in_time == [True]
        log = vhost_path(tmp_path, "billing") / "log"
        assert [path.name for path in log.glob("msgs.*")] == ["msgs.0000000001"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RealDirectory, "make_directory"),
        (RealDisk, "lock"),
        (RealDirectory, "open"),
        (RealDisk, "sync_directory"),
    ],
)
async def test_a_start_that_hangs_is_left(
    tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, kind: type, name: str
) -> None:
    """Found: nothing but SIGKILL ended it; and where it hung before its first thread, not even a signal was heard."""
    path = tmp_path / "data"
    if name == "open":
        async with opened(path) as one:
            await declare(one.get("/"), "jobs")

    async def start() -> None:
        async with opened(path):
            raise AssertionError("it hangs")

    with monkeypatch.context() as patch, trio.fail_after(PATIENCE_S / 2):
        hanging.before(patch, kind, name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await until(hanging.hung.is_set)
            nursery.cancel_scope.cancel()
        hanging.let_go.set()
        await until(lambda: opens(path))
    async with opened(path) as one:
        assert ready(one.get("/")) == ({"jobs": 0} if name == "open" else {})


@pytest.mark.parametrize(("kind", "name"), [(RealDirectory, "make_directory"), (RealDisk, "lock")])
async def test_a_vhost_whose_making_hangs_holds_up_no_broker_that_closes(
    tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, kind: type, name: str
) -> None:
    with monkeypatch.context() as patch, trio.fail_after(PATIENCE_S / 2):
        async with serving(tmp_path, config=IMPATIENT) as broker, client(broker) as home:
            hanging.before(patch, kind, name)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(home.create_vhost, "billing")
                await until(hanging.hung.is_set)
                nursery.cancel_scope.cancel()
    hanging.let_go.set()
    await until(lambda: opens(tmp_path))
    async with opened(tmp_path) as one:
        await one.create("billing")
        assert one.names == ["/", "billing"]
