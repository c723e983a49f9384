"""Definitions of a whole vhost, imported: all of it or nothing, as of the moment it is written."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import trio

import durable
from durable.broker.collecting import NEVER_THRESHOLD, Collector
from durable.broker.defining import apply_import
from durable.broker.peer import Peer
from durable.broker.running_vhost import RunningVhost
from durable.broker.stream_check import StreamCheck
from durable.client import connection
from durable.definition_forms import export_definitions
from durable.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import (
    DefinitionConflict,
    InvalidDefinition,
    RecordTooLarge,
    TooManyPatterns,
    TooManyQueues,
)
from durable.log.faulty_disk import Faults, FaultyDisk
from durable.log.memory_disk import Volume
from durable.protocol.definition_bytes import pack_definitions
from durable.vhost.addition import build_addition
from durable.vhost.vhost import Vhost
from mesh.nursery import open_nursery
from tests.brokers import SMALL, client, node_of, serving
from tests.power_cuts import run
from tests.vhosts import AnyStreams
from tests.waiting import PATIENCE_S, until, virtual_sleep

PLAIN = export_definitions(
    Definitions(
        exchanges=(ExchangeDefinition(name="events", type="topic"),),
        queues=(QueueDefinition(name="jobs"), QueueDefinition(name="news", durability="memory")),
        streams=(StreamDefinition(name="audit", patterns=("orders.>",)),),
        bindings=(
            BindingDefinition(exchange="events", destination="jobs", key="#"),
            BindingDefinition(exchange="events", destination="news", key="#"),
        ),
    ),
    "/",
)


async def test_what_lasts_is_there_after_a_restart_and_what_is_in_memory_is_not(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        new = {"exchange": 1, "queue": 2, "stream": 1, "binding": 2}
        assert await shop.import_definitions(PLAIN) == new
        await shop.publish("events", "any", b"routed to both")
        found = await shop.statistics()
        assert [one["ready"] for one in found["queues"].values()] == [1, 1]
        assert await shop.import_definitions(PLAIN) == {}
    async with serving(tmp_path) as broker, client(broker) as shop:
        again = await shop.export_definitions()
        assert [one["name"] for one in again["queues"]] == ["jobs"]
        assert [one["destination"] for one in again["bindings"]] == ["jobs"]
        assert await shop.import_definitions(PLAIN) == {"queue": 1, "binding": 1}


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "queues",
    [
        [{"name": "jobs", "max_length": 10**30}], [{"name": "\ud800"}], [{"name": object()}],
        [nested(500)], nested(900), [{"name": nested(100_000)}], 5,
    ],
)  # fmt: skip
async def test_what_json_can_say_and_nobody_can_declare_is_refused_by_name(
    tmp_path: Path, queues: Any
) -> None:
    """Found: an OverflowError, a UnicodeEncodeError; or a session that ended, and the call again."""
    async with serving(tmp_path) as broker, client(broker) as shop:
        session = await shop._channel.wait_connected()
        for wrong in ({**PLAIN, "queues": queues}, queues):
            with pytest.raises(InvalidDefinition):
                await shop.import_definitions(wrong)
        assert session == await shop._channel.wait_connected()


async def test_definitions_are_encoded_outside_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: 200,000 queues took most of a second, in which this node answered nobody."""
    threads = list[int]()

    def pack(plain: Any) -> bytes:
        threads.append(threading.get_ident())
        return pack_definitions(plain)

    monkeypatch.setattr(connection, "pack_definitions", pack)
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_stream_that_was_imported_captures(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)

        async def captured() -> int:
            await node_of(broker).publish("orders.eu", b"captured once somebody listens")
            return int((await shop.statistics())["streams"]["audit"]["end"])

        await until(captured)


async def test_more_queues_than_there_may_be_are_refused_altogether(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, config=replace(SMALL, queues_max=2)) as broker,
        client(broker) as shop,
    ):
        with pytest.raises(TooManyQueues):
            await shop.import_definitions(PLAIN)
        assert (await shop.statistics())["queues"] == {}


async def test_what_is_declared_while_it_waits_for_room_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it was checked once, and then replaced queues declared since."""
    faults, volume = Faults(), Volume()
    monkeypatch.setattr("durable.broker.opening.RealDisk", lambda path: FaultyDisk(volume, faults))
    config = replace(SMALL, log=replace(SMALL.log, pending_bytes_max=1))
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        await shop.declare_queue("first")
        released = threading.Event()
        faults.before_sync = lambda: released.wait(PATIENCE_S)
        log, checked = broker.hosted("/").log, trio.Event()
        extend = Vhost.extend

        def extending(*given: Any) -> int:
            checked.set()
            return extend(*given)

        monkeypatch.setattr(Vhost, "extend", extending)

        async def publish() -> None:
            await shop.publish("", "first", b"in the way")

        async def apply_import() -> None:
            assert await shop.import_definitions(PLAIN)

        async def declare() -> None:
            with pytest.raises(DefinitionConflict, match="jobs"):
                await shop.declare_queue("jobs", durability="memory")  # It needs no room.

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish)
                await until(lambda: log.statistics().pending_bytes)
                nursery.start_soon(apply_import)
                await checked.wait()
                nursery.start_soon(declare)
                await until(lambda: hosted_waits(broker))
                assert set((await shop.statistics())["queues"]) == {"first"}
                released.set()
        assert set((await shop.statistics())["queues"]) == {"first", "jobs", "news"}


def hosted_waits(broker: durable.Broker) -> bool:
    """Whether somebody waits for an import to be done."""
    return broker.hosted("/").change_writer.gate.waiting > 0


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Entries at once."""
    monkeypatch.setattr("durable.turns.ENTRIES_AT_ONCE", 10)
    return 10


MANY = Definitions(
    exchanges=tuple(ExchangeDefinition(name=f"x{n}", alternate="") for n in range(40)),
    queues=tuple(QueueDefinition(name=f"q{n}") for n in range(40)),
    streams=tuple(StreamDefinition(name=f"s{n}", patterns=(f"t.{n}",)) for n in range(40)),
    bindings=tuple(
        BindingDefinition(exchange=exchange, destination=f"q{n}", key=f"{n}")
        for exchange in ("x0", "amq.topic") for n in range(40)
    ),
    permissions=tuple(
        PermissionDefinition(cluster=cluster, configure=".*", write=".*", read=".*")
        for cluster in ("shop", *(f"c{n}" for n in range(39)))
    ),
)  # fmt: skip
WORK = (
    "durable.broker.defining._for_import", "durable.definition_forms._check_ends",
    "durable.definition_forms.check_built_in", "durable.vhost.addition.to_plain",
    "durable.vhost.addition.check_existing_pattern", "durable.routing.extension.destination_of",
)  # fmt: skip


@pytest.mark.parametrize("again", [False, True])
async def test_others_have_their_turn_and_see_all_of_it_or_nothing(
    tmp_path: Path, few: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: it was checked and made so in one turn, with 100,000 queues and bindings of several seconds."""
    made = seen = most = turns = 0
    plain = export_definitions(MANY, "/")

    def counting(work: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            nonlocal made
            made += 1
            return work(*given)

        return count

    async with serving(tmp_path) as broker, client(broker) as shop:
        registry = broker.hosted("/").vhost.registry

        def there() -> tuple[int, ...]:
            exchanges, bindings = registry.router.definitions()
            captures = len(registry.captures.match("t.1"))
            return (
                len(registry.queues), len(registry.lanes), len(exchanges), len(bindings), captures,
                len(registry.router.route("amq.topic", ("1",))),
                len(registry.permissions.definitions()),
            )  # fmt: skip

        async def watch() -> None:
            nonlocal seen, most, turns
            while True:
                await trio.lowlevel.checkpoint()
                most, seen, turns = max(most, made - seen), made, turns + 1
                assert there() == nothing or there()[0] == len(MANY.queues)

        nothing = there()
        if again:
            await shop.import_definitions(plain)
        for name in WORK:
            where, _, what = name.rpartition(".")
            monkeypatch.setattr(name, counting(getattr(import_module(where), what)))
        async with open_nursery() as nursery:
            nursery.start_soon(watch)
            new = await shop.import_definitions(plain)
            nursery.cancel_scope.cancel()
        assert sum(new.values()) == (0 if again else 240)
        assert there() == (40, 80, 40, 80, 1, 1, 40)
    assert made >= 240
    # Of each kind of work, in each of two turns that may come between two of ours.
    assert max(most, made - seen) <= 4 * few


async def test_one_that_is_given_up_lets_others_declare_and_leaves_nothing(
    tmp_path: Path, few: int
) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        running = broker.hosted("/")
        peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
        with trio.CancelScope() as scope:
            scope.cancel()
            await apply_import(running, peer, ("/", MANY), AnyStreams)
        for cancelled in range(0, 300, 5):
            with trio.CancelScope() as scope:
                async with open_nursery() as nursery:
                    nursery.start_soon(apply_import, running, peer, ("/", MANY), AnyStreams)
                    for _ in range(cancelled):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            with trio.fail_after(PATIENCE_S):
                await shop.declare_queue("other")
            found = set((await shop.statistics())["queues"])
            assert found in ({"other"}, {"other", *(one.name for one in MANY.queues)})
        assert found != {"other"}


async def test_a_cursor_does_not_wait_for_an_import(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions(PLAIN)
        await shop.publish("", "audit", b"one")
        running = broker.hosted("/")
        with trio.fail_after(PATIENCE_S):
            async with (
                running.change_writer.gate.exclusive(),
                shop.read("audit", start="first", cursor="me") as records,
            ):
                await records.take()
                await records.store()
        assert running.vhost.registry.streams["audit"].cursors == {"me": 1}


async def test_patterns_that_others_declare_meanwhile_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All vhosts share what the node may subscribe to, and the gate is of one of them."""
    meanwhile = False

    def declared_by_others(*given: Any) -> Any:
        nonlocal meanwhile
        meanwhile = True
        return build_addition(*given)

    def check(streams: Iterable[StreamDefinition]) -> StreamCheck:
        def check_room(new: int) -> None:
            if meanwhile and new:
                raise TooManyPatterns(3, 2)

        return StreamCheck([running.vhost], "shop", streams, check_room)

    monkeypatch.setattr("durable.broker.defining.build_addition", declared_by_others)
    async with serving(tmp_path) as broker:
        running = broker.hosted("/")
        peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
        with pytest.raises(TooManyPatterns):
            await apply_import(running, peer, ("/", MANY), check)
        assert not running.vhost.registry.queues


async def test_patterns_are_checked_a_few_at_a_time_before_the_turn(tmp_path: Path) -> None:
    done = list[str]()

    class Noted(AnyStreams):
        def steps(self) -> Generator[None]:
            for _ in range(3):
                done.append("step")
                yield

        def now(self) -> None:
            done.append("turn")

    async with serving(tmp_path) as broker:
        running = broker.hosted("/")
        peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
        await apply_import(running, peer, ("/", MANY), Noted)
        assert done == ["step"] * 3 + ["turn"]


async def test_more_than_a_segment_takes_is_refused_and_the_connection_goes_on(
    tmp_path: Path,
) -> None:
    """Found: it ended the connection for good, as if the client did not speak our protocol."""
    segments = replace(SMALL.log, segment_bytes=1 << 16, reserve_bytes=1 << 12)
    many = Definitions(queues=tuple(QueueDefinition(name=f"{n:0100}") for n in range(300)))
    async with (
        serving(tmp_path, config=replace(SMALL, log=segments)) as broker, client(broker) as shop,
    ):  # fmt: skip
        with pytest.raises(RecordTooLarge) as caught:
            await shop.import_definitions(export_definitions(many, "/"))
        assert caught.value.size_bytes > caught.value.limit_bytes
        assert await shop.import_definitions(PLAIN)
        assert "jobs" in (await shop.statistics())["queues"]


async def test_in_a_process_of_its_own_a_start_and_an_import_leave_nothing_old_to_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: twelve full collections in an import of 100,000 queues, of up to 350 ms each."""
    old: list[int] = []
    monkeypatch.setattr("durable.broker.broker.Collector", partial(Collector, own_process=True))
    monkeypatch.setattr("durable.broker.collecting.FREEZE_MIN", 3)
    monkeypatch.setattr(gc, "freeze", lambda: old.append(gc.get_threshold()[2]))
    before = gc.get_threshold()
    async with serving(tmp_path) as broker, client(broker) as shop:
        await shop.import_definitions({**PLAIN, "queues": [], "streams": [], "bindings": []})
        assert not old
        await shop.declare_queue("one")
        await shop.import_definitions(PLAIN)
        assert old == [NEVER_THRESHOLD]
        await shop.declare_queue("two")
    async with serving(tmp_path):
        assert old == [NEVER_THRESHOLD, NEVER_THRESHOLD]
        assert gc.get_threshold() == before


def test_a_queue_that_is_about_to_be_deleted_stays_if_it_is_imported() -> None:
    """As if it were declared again. Found: the import was answered, and the queue deleted a moment later."""
    definition = QueueDefinition(name="jobs", auto_delete=True, expires_s=60.0)

    async def life(running: RunningVhost) -> None:
        peer = Peer("shop", running.vhost.registry.permissions, b"s" * 16)
        requested = ("/", Definitions(queues=(definition,)))
        assert await apply_import(running, peer, requested, AnyStreams) == {"queue": 1}
        queue = running.vhost.registry.queue("jobs")
        await virtual_sleep(1.0)
        running.auto_deletions.add(queue, "a test", stays=lambda: False)
        assert await apply_import(running, peer, requested, AnyStreams) == {}
        assert queue.idle_since_us() == running.clock.now_us()
        running.auto_deletions.due.wake()
        await virtual_sleep(1.0)
        assert running.vhost.registry.queues == {"jobs": queue}

    run(Volume(), life)
