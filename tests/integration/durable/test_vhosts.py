"""Vhosts made and deleted while a broker runs: nothing of one is seen, or touched, from another."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest
import trio

import durable
import durable.broker.vhosts
import durable.log.real_disk
import mesh
from durable.broker.checkpoints import Checkpointer
from durable.broker.directory import DELETED_FILE, make_vhost, vhost_path
from durable.errors import (
    InUse,
    InvalidDefinition,
    StoreClosed,
    StoreFailed,
    StoreFull,
    UnknownQueue,
    UnknownVhost,
)
from durable.log.disk import Directory
from durable.log.real_disk import RealDirectory, RealDisk, RealFile
from durable.protocol.calls import CONSUME, decode_answer, encode_hello
from tests.brokers import SMALL, client, drain, node_of, numbered, serving
from tests.nodes import node
from tests.waiting import PATIENCE_S, until


async def test_a_vhost_has_queues_of_its_own_and_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        await home.create_vhost("billing")
        assert await home.vhosts() == ["/", "billing"]
        billing = durable.connect(joined, vhost="billing")
        await billing.declare_queue("jobs")
        await billing.publish_many("", "jobs", numbered(10))
        with pytest.raises(UnknownQueue):
            await home.purge_queue("jobs")
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        billing = durable.connect(joined, vhost="billing")
        assert await drain(billing, "jobs") == numbered(10)


async def test_a_deleted_vhost_is_gone_with_its_files_and_its_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        billing = durable.connect(joined, vhost="billing", timeout=1)
        await billing.declare_queue("jobs")
        async with billing.consume("jobs") as deliveries:
            assert await home.delete_vhost("billing") is True
            assert await home.delete_vhost("billing") is False
            with trio.fail_after(PATIENCE_S), pytest.raises(UnknownVhost):
                await deliveries.take()
        assert await home.vhosts() == ["/"]
        assert len(list((tmp_path / "vhosts").iterdir())) == 1
        await home.create_vhost("billing")
        again = durable.connect(joined, vhost="billing")
        with pytest.raises(UnknownQueue):
            await again.purge_queue("jobs")


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_is_left_of_a_deleted_vhost_is_no_part_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Found: after a kill while its files went, a new one of its name had its queues."""

    def killed(above: Directory, name: str) -> None:
        raise OSError("gone before anything was")

    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        billing = durable.connect(joined, vhost="billing")
        await billing.declare_queue("jobs")
        await billing.publish_many("", "jobs", numbered(10))
        with monkeypatch.context() as patch:
            patch.setattr("durable.broker.directory._remove", killed)
            await home.delete_vhost("billing")
        assert await home.vhosts() == ["/"]
        if not restarted:
            await home.create_vhost("billing")
            assert (await durable.connect(joined, vhost="billing").statistics())["queues"] == {}
    async with serving(tmp_path) as broker, client(broker) as home:
        assert await home.vhosts() == ["/", *([] if restarted else ["billing"])]
        assert len(list((tmp_path / "vhosts").iterdir())) == 1 + (not restarted)


async def test_a_vhost_that_could_not_be_deleted_is_there_and_its_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: `True`, as if it were gone, and the next start had it."""

    rename = RealDirectory.rename

    def refuse(self: RealDirectory, old: str, new: str) -> None:
        if new == DELETED_FILE:
            raise OSError(errno.EIO, "Input/output error")
        rename(self, old, new)

    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        await durable.connect(joined, vhost="billing").declare_queue("jobs")
        with monkeypatch.context() as patch:
            patch.setattr(RealDirectory, "rename", refuse)
            with pytest.raises(StoreFailed, match=r"'billing' was not deleted.*Input/output error"):
                await home.delete_vhost("billing")
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        assert await home.vhosts() == ["/", "billing"]
        billing = durable.connect(joined, vhost="billing")
        assert list((await billing.statistics())["queues"]) == ["jobs"]
        assert await home.delete_vhost("billing") is True
        assert await home.vhosts() == ["/"]


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("damaged", [b"", b"qilling", b"\xff"])
async def test_a_vhost_whose_name_is_damaged_costs_no_other_and_comes_back(
    tmp_path: Path, damaged: bytes, store: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: the broker did not start, for one bit of a name; without the file `store` as well, it was
    left out and nobody was told."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        for vhost in ("/", "billing"):
            there = durable.connect(joined, vhost=vhost)
            await there.declare_queue("jobs")
            await there.publish_many("", "jobs", numbered(10))
    for file in (tmp_path / "vhosts").glob("*/vhost"):
        file.write_bytes(damaged)
        if not store:
            (file.parent / "log" / "store").unlink()
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        assert await home.vhosts() == ["/"]
        (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert (
            f"the vhost in {vhost_path(tmp_path, 'billing')} is not served: its name file says"
            in said
        )
        assert "`mesh-broker salvage`" in said
        assert await drain(home, "jobs") == numbered(10)
        await home.create_vhost("billing")
        assert await drain(durable.connect(joined, vhost="billing"), "jobs") == numbered(10)


async def test_nobody_gets_at_a_vhost_that_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: who came while it closed had a session of nothing, for good."""
    closing, go_on = trio.Event(), trio.Event()
    write = Checkpointer.write

    async def hang(self: Checkpointer) -> None:
        closing.set()
        await go_on.wait()
        await write(self)

    monkeypatch.setattr(Checkpointer, "write", hang)
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("billing")
        await durable.connect(joined, vhost="billing").declare_queue("jobs")
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(home.delete_vhost, "billing")
                await closing.wait()
                assert await home.vhosts() == ["/"]
                with pytest.raises(UnknownVhost):
                    await durable.connect(joined, vhost="billing").declare_queue("jobs")
                nursery.start_soon(home.create_vhost, "billing")
                go_on.set()
            assert await home.vhosts() == ["/", "billing"]
            assert (await durable.connect(joined, vhost="billing").statistics())["queues"] == {}


async def test_a_connection_to_what_is_not_there_yet_gathers_nothing_and_comes_when_it_is(
    tmp_path: Path,
) -> None:
    """Found: one error was raised for ever, and held all frames and payloads of each time, 60 MiB after
    400 tries; and so it went on when the vhost was made."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        later = durable.connect(joined, vhost="later")
        ended = later.publisher()
        ended.start()
        await until(lambda: ended.ended)
        calls: list[Callable[[], Awaitable[object]]] = [
            later.statistics, lambda: later.publish("", "jobs", b"1"),
            lambda: ended.send("", "jobs", b"1"),
        ]  # fmt: skip
        for call in calls:
            told: list[UnknownVhost] = []
            for _ in range(4):
                with pytest.raises(UnknownVhost) as unknown:
                    await call()
                told.append(unknown.value)
            assert len({id(one) for one in told}) == 4
            assert len({len(list(walk_tb(one.__traceback__))) for one in told[1:]}) == 1
        await durable.connect(joined).create_vhost("later")
        with trio.fail_after(PATIENCE_S):
            await later.declare_queue("jobs")
            await later.publish("", "jobs", b"2")
            assert await drain(later, "jobs") == [b"2"]


async def test_vhosts_that_cannot_be(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as home:
        with pytest.raises(InUse):
            await home.delete_vhost("/")
        with pytest.raises(InvalidDefinition):
            await home.create_vhost("")


async def test_streams_of_a_vhost_made_later_capture_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        await durable.connect(joined).create_vhost("audit")
        audit = durable.connect(joined, vhost="audit")
        await audit.declare_stream("orders", patterns=["orders.>"])
        async with audit.read("orders", start="first") as records:

            async def captured() -> int:
                await joined.publish("orders.eu", b"1")
                return int((await audit.statistics())["streams"]["orders"]["end"])

            await until(captured)
            with trio.fail_after(PATIENCE_S):
                assert (await anext(records)).payload == b"1"


async def test_a_session_of_one_vhost_opens_nothing_in_another(tmp_path: Path) -> None:
    """Its permissions are those of the vhost that it is of."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.create_vhost("secret")
        secret = durable.connect(joined, vhost="secret")
        await secret.declare_queue("jobs")
        session = await home._channel.wait_connected()
        async with joined.open_tunnel("broker/durable") as tunnel:
            await tunnel.send(encode_hello(CONSUME, "secret", session=session, queue="jobs"))
            with trio.fail_after(PATIENCE_S), pytest.raises((mesh.MeshError, StopAsyncIteration)):
                decode_answer(await anext(tunnel))


@pytest.mark.parametrize("at", ["make_vhost", "open_vhost"])
async def test_what_could_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Found: its name was left, so the next start opened it, or did not begin for it."""

    def fail(path: Path, *_rest: object) -> None:
        if at == "make_vhost":
            make_vhost(path, "billing")
            raise OSError(errno.ENOSPC, "No space left on device")
        raise StoreFull(1, 1, 0)

    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        with monkeypatch.context() as patch:
            patch.setattr(f"durable.broker.vhosts.{at}", fail)
            with pytest.raises(StoreFull):
                await home.create_vhost("billing")
        assert await home.vhosts() == ["/"]
        assert not vhost_path(tmp_path, "billing").exists()
        await home.create_vhost("billing")
        await durable.connect(joined, vhost="billing").declare_queue("jobs")
        # What is there and lost its name is no new one: it keeps all that it has.
        (vhost_path(tmp_path, "billing") / "vhost").unlink()
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        with monkeypatch.context() as patch:
            patch.setattr(f"durable.broker.vhosts.{at}", fail)
            with pytest.raises(StoreFull):
                await home.create_vhost("billing")
        await home.create_vhost("billing")
        there = await durable.connect(joined, vhost="billing").statistics()
        assert list(there["queues"]) == ["jobs"]


CHANGES = [
    (RealDirectory, "make_directory"), (RealDirectory, "create"), (RealDirectory, "rename"),
    (RealFile, "pwritev"), (RealFile, "fdatasync"),
]  # fmt: skip


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_vhost_on_a_full_disk_is_made_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Found: "the store has stopped", though the broker only lacked some space for another one. And what an
    attempt left before it had a name passed for a vhost in the next one, which left it with a name."""
    left = 0

    def changing(works: Callable[..., Any]) -> Callable[..., Any]:
        def change(one: Any, *args: Any) -> Any:
            nonlocal left
            path = getattr(one, "path", "") or os.readlink(f"/proc/self/fd/{one._descriptor}")
            if str(there) not in path and args[:1] != ("vhost",):  # By that name it goes again.
                left -= 1
                if left < 0:
                    raise OSError(number, os.strerror(number))
            return works(one, *args)

        return change

    async with serving(tmp_path) as broker, client(broker) as home:
        (there,) = (tmp_path / "vhosts").iterdir()
        attempts = 0
        with monkeypatch.context() as patch:
            for kind, name in CHANGES:
                patch.setattr(kind, name, changing(getattr(kind, name)))
            while True:
                left, attempts = attempts, attempts + 1
                with suppress(StoreFull):
                    await home.create_vhost("billing")
                    break
                assert [*(tmp_path / "vhosts").iterdir()] == [there], attempts
        assert attempts > 6
        await home.declare_queue("jobs")


@pytest.mark.parametrize("at", ["is_vhost", "make_vhost", "free_bytes"])
async def test_a_vhost_on_a_disk_that_fails_is_not_told_as_one_without_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Found: a stack trace, and its client was told of a lost broker, where the first look at it failed, or the one
    at how full the disk is."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with serving(tmp_path) as broker, client(broker) as home:
        if at == "free_bytes":
            monkeypatch.setattr("durable.broker.vhosts.make_vhost", full)
        monkeypatch.setattr(f"durable.broker.vhosts.{at}", fail)
        with pytest.raises(StoreFailed, match="'billing' cannot be created") as caught:
            await home.create_vhost("billing")
        assert str(caught.value).startswith("vhost 'billing' cannot be created: [Errno ")
        await home.declare_queue("jobs")  # "The store has stopped", it said.
        await home.publish("", "jobs", b"x")


async def test_a_vhost_whose_log_cannot_be_opened_stops_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: whoever made it was told that the store has stopped, and to restart the broker."""

    def fail(*_: object, **__: object) -> None:
        raise StoreFailed("log cannot be opened: Input/output error")

    async with serving(tmp_path) as broker, client(broker) as home:
        monkeypatch.setattr("durable.broker.opening.open_log", fail)
        with pytest.raises(StoreFailed) as caught:
            await home.create_vhost("billing")
        said = "vhost 'billing' cannot be created: log cannot be opened: Input/output error: check the disk"
        assert str(caught.value) == said
        assert await home.vhosts() == ["/"]


@pytest.mark.parametrize("call", ["make_vhost", "remove_vhost"])
async def test_vhosts_are_made_and_removed_when_there_are_descriptors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Found: one that was deleted then was there again, with its messages, when it was made again or at the next start."""
    refusals, done = 2, getattr(durable.broker.vhosts, call)

    def scarce(*args: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return done(*args)

    config = replace(SMALL, log=replace(SMALL.log, retry_s=0.05))
    async with serving(tmp_path, config=config) as broker, client(broker) as home:
        there = [*(tmp_path / "vhosts").iterdir()]
        monkeypatch.setattr(durable.broker.vhosts, call, scarce)
        await home.create_vhost("billing")
        assert await home.vhosts() == ["/", "billing"]
        assert await home.delete_vhost("billing") is True
        assert [*(tmp_path / "vhosts").iterdir()] == there
        assert not refusals


async def test_a_vhost_is_opened_when_there_are_descriptors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: where there was none to lock its directory with, it could not be created."""
    refusals, lock = 2, RealDisk.lock

    def scarce(disk: RealDisk) -> None:
        nonlocal refusals
        with monkeypatch.context() as patched:
            if refusals:
                refusals -= 1
                patched.setattr(durable.log.real_disk, "_open_directory", no_descriptor)
            lock(disk)

    def no_descriptor(path: Path) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    config = replace(SMALL, log=replace(SMALL.log, retry_s=0.05))
    async with serving(tmp_path, config=config) as broker, client(broker) as home:
        monkeypatch.setattr(RealDisk, "lock", scarce)
        await home.create_vhost("billing")
        assert await home.vhosts() == ["/", "billing"]
        assert not refusals


async def cut_off_making(broker: durable.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the client were lost once the vhost has its directory."""
    with monkeypatch.context() as patched, trio.CancelScope() as scope:

        def make_and_cut_off(data: Path, name: str) -> Path:
            made = make_vhost(data, name)
            trio.from_thread.run_sync(scope.cancel)
            return made

        patched.setattr(durable.broker.vhosts, "make_vhost", make_and_cut_off)
        await broker._vhosts.create("billing")
    assert scope.cancelled_caught


async def test_a_vhost_whose_making_was_cut_off_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it was there after the next start, also if it had been deleted meanwhile, which found none."""
    async with serving(tmp_path) as broker:
        await cut_off_making(broker, monkeypatch)
        await until(lambda: not vhost_path(tmp_path, "billing").exists())
        assert broker._vhosts.names == ["/"]
    async with serving(tmp_path) as broker:
        assert broker._vhosts.names == ["/"]


async def test_a_vhost_is_made_again_at_once_after_its_making_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as broker:
        await cut_off_making(broker, monkeypatch)
        await broker._vhosts.create("billing")
        assert broker._vhosts.names == ["/", "billing"]
    async with serving(tmp_path) as broker:
        assert broker._vhosts.names == ["/", "billing"]


async def test_a_vhost_that_cannot_be_made_is_removed_even_if_the_client_is_lost_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: half of it was left, and the next start had it."""
    async with serving(tmp_path) as broker:
        with monkeypatch.context() as patched, trio.CancelScope() as scope:

            async def fail_and_cut_off(*_: object, **__: object) -> None:
                scope.cancel()
                raise OSError(errno.EIO, "Input/output error")

            patched.setattr(durable.broker.vhosts.Vhosts, "_host", fail_and_cut_off)
            await broker._vhosts.create("billing")
        assert scope.cancelled_caught
        await until(lambda: not vhost_path(tmp_path, "billing").exists())
    async with serving(tmp_path) as broker:
        assert broker._vhosts.names == ["/"]


async def test_a_broker_that_closes_before_such_a_vhost_is_removed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: where the log had closed meanwhile, as while the disk hangs, the broker ended with StoreClosed."""

    async def closed(*_: object) -> None:
        raise StoreClosed

    async with serving(tmp_path) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(durable.broker.vhosts.Vhosts, "_remove", closed)
            await cut_off_making(broker, monkeypatch)
            await until(lambda: "vhost billing is not deleted yet" in caplog.text)
        assert broker._vhosts.names == ["/"]
