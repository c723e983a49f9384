"""A whole vhost, as its clients and its broker drive it, against plain lists: hypothesis chooses.

Two connections declare, bind, purge and delete queues (on disk, in memory, exclusive, deleted
automatically), streams with cursors, and exchanges in between. Publishers send, send again, begin again,
and may stop at a refusal. Queues have a maximum of messages and of bytes (drop-head or reject-publish),
times to live of their messages and of themselves, priorities, delivery limits, dead letters that may
come back, a single active consumer. Consumers have priorities and credit, are exclusive, pause, settle
in any order, and leave. There are snapshots, checkpoints, and what both free; compaction, which also cuts
settled messages out of records; imports, and permissions, which refuse nothing to these clients. A crash
keeps what is durable and some of what is not yet, and the clock may have jumped.

After every step all that can be asked must agree, the log position included. Not here: a disk that is
full, fails, or loses what was synced; what permissions refuse.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from durable.broker.compaction import _move
from durable.broker.cut_estimate import NeededRecord, needed_of
from durable.definitions import QueueDefinition
from durable.log.bodies import move
from durable.log.checkpoints import Root
from durable.queues.lane import Lane
from durable.queues.queue import Queue as BrokerQueue
from durable.vhost.changes import Change
from durable.vhost.checkpointing import CheckpointRound, decode_extra
from durable.vhost.registry import TRANSIENT_LANE_MIN
from durable.vhost.snapshot import Snapshot
from durable.vhost.store import append_twice
from tests.compactions import cut_at_any_price
from tests.vhost_members import READY
from tests.vhost_model import NOW_US

from .vhost_definitions import WANTED, bindings, exchanges, imports, limited, members, permissions
from .vhost_driving import NOBODY, STEP_US, contents, run
from .vhost_using import Using

NOW_MIN_US = NOW_US % STEP_US
"""Whole steps before all other times: two times less than a step apart may share a mark, which is not exact."""


class Encoding(NamedTuple):
    """A snapshot that is to be appended."""

    snapshot: Snapshot
    declared: list[Change]
    start: int
    taking: CheckpointRound | None


def returns_in(lane: Lane) -> dict[int, int]:
    """How often each message that is not settled has come back, by sequence."""
    return {
        at: times
        for start, end in lane.settled.unsettled(0, lane.index.end)
        for low, high, times in lane.returns_between(start, end)
        for at in range(low, high)
    }


class Crashing(Using):
    encoding: Encoding | None = None

    @rule(
        how=st.sampled_from(["appended", "alone", "alone", "files", "root", "root"]),
        at_once=st.sampled_from([False, True, True]),
    )  # fmt: skip
    def snapshot(self, how: str, at_once: bool) -> None:
        """As the checkpointer does it, up to some point.

        appended: the snapshot is on its way. files: so are the files, before it. root: and all else; what
        that makes superfluous is given up. alone: there is no room for files. Not at once: others have
        their turns while it is encoded; what they declare makes it void here, and waits in a broker.
        """
        encoding, self.encoding = self.encoding, None
        if encoding is None or encoding.declared != list(self.registry.declared()):
            encoding = self.encode(how)
            if not at_once or how == "files":
                self.encoding = encoding
                return
        self.turn()
        self.model.end = self.log.end
        drafts = self.vhost.drafts(encoding.snapshot, self.model.now_us)
        positions = append_twice(self.log, drafts)
        self.model.snapshot()
        assert self.model.end == self.log.end
        if how != "appended":
            self.log.commit()
            self.give_up(encoding, positions[0])
            self.check_start()

    def encode(self, how: str) -> Encoding:
        self.turn()
        start = self.running.applied_end
        taking = self.write_files() if how in ("files", "root") else None
        snapshot = self.vhost.snapshot(start, complete=how == "alone")
        for _ in snapshot.steps():
            pass
        return Encoding(snapshot, list(self.registry.declared()), start, taking)

    def give_up(self, encoding: Encoding, snapshot: int) -> None:
        """What nobody needs any more."""
        taking, start = encoding.taking, encoding.start
        self.files.root = None
        if taking is not None:
            self.files.root = Root(snapshot, start, taking.extra)
            named = {one.lane for one in decode_extra(taking.extra)}
            self.files.queues = {at: one for at, one in self.files.queues.items() if at in named}
        needed = self.log.needed()
        for position in [one for one in self.log.records if one < start]:
            if position not in needed:
                del self.log.records[position]

    def write_files(self) -> CheckpointRound:
        taking = self.checkpointing.begin_round()
        while taking.has_more:
            taking.encode_some(self.running.applied_end, self.vhost.settling.last_position)
        self.log.commit()
        written = [one.checkpoint() for one in taking.changed]
        self.files.queues |= {one.lane: one for one in written}
        self.checkpointing.note_written(taking)
        return taking

    @rule(settled=st.booleans(), steps=st.sampled_from([-8, -2, 0, 0, 0, 1]), data=st.data())
    def crash(self, settled: bool, steps: int, data: st.DataObject) -> None:
        """Of what is not durable some has been written, up to some record; the clock may have been wrong.

        settled: with nothing on its way, so that what the log needs is the same on both sides.
        """
        if settled:
            self.commit_all()
        self.model.now_us = max(NOW_MIN_US, self.model.now_us + STEP_US * steps)
        self.crash_now(data, settled=settled)

    def crash_now(self, data: st.DataObject, *, settled: bool = False) -> None:
        needed = self.log.needed()
        kept = data.draw(st.integers(self.log.durable_end, self.log.end))
        self.model.crash(kept)
        self.encoding = None
        self.start(self.plain.restarted(kept=kept, now_us=self.model.now_us))
        if settled:
            assert self.log.needed() == needed
        self.check_contents()

    @rule(
        first=st.sampled_from([0, 0, 0, 2, 5]), count=st.integers(1, 4), cuts=st.booleans(),
        dies=st.sampled_from([False, False, True]), data=st.data(),
    )  # fmt: skip
    def compact(
        self, first: int, count: int, cuts: bool, dies: bool, data: st.DataObject
    ) -> None:  # fmt: skip
        """Carry forward what is needed of some records. What dies has appended the copies, and no more."""
        if cuts and self.in_use():
            self.ack_every_other(data.draw(st.sampled_from(self.in_use())))
        self.turn()
        with cut_at_any_price() if cuts else nullcontext():
            some = self.needed_records(first, count)
        if some and dies:
            self.append_copies(some)
            self.crash_now(data)
        elif some:
            run(_move(self.running, some, NOBODY))
            self.commit_all()  # What was settled meanwhile is released when that is durable.
            assert not {one.record.position for one in some} & self.log.needed().keys()

    def needed_records(self, first: int, count: int) -> list[NeededRecord]:
        """Return some that lanes need, which are on the disk; those of which messages can be cut out come first."""
        at = [one for one in sorted(self.log.needed()) if one < self.log.durable_end]
        found = [needed_of(self.vhost, self.log.records[one]) for one in at]
        some = sorted((one for one in found if one is not None), key=lambda one: one.cut is None)
        first = min(first, max(0, len(some) - count))
        return sorted(some[first : first + count], key=lambda one: one.record.position)

    def append_copies(self, some: list[NeededRecord]) -> None:
        if any(one.cut is not None for one in some):
            self.log.commit()
        self.log.append_nowait([move(one.record, one.targets, one.cut) for one in some])

    def commit_all(self) -> None:
        for _ in range(2):  # Settlements travel with the next commit.
            self.log.commit()

    def check_start(self) -> None:
        """What is given up would not be missed, if the broker were started now."""
        self.commit_all()
        with pytest.MonkeyPatch.context() as patch:
            # What consumers hold comes back, and may be more than is allowed: the oldest go then, not by this.
            patch.setattr(BrokerQueue, "shorten", lambda *_: None)
            again = self.plain.restarted(kept=self.log.end)
        lanes = {one for one in self.registry.lanes if one < TRANSIENT_LANE_MIN}
        assert lanes == again.registry.lanes.keys()
        for lane in lanes:
            assert returns_in(self.registry.lanes[lane]) == returns_in(again.registry.lanes[lane])
        assert list(self.registry.gaps) == list(again.registry.gaps)
        assert self.log.needed() == again.store.needed()

    def check_contents(self) -> None:
        for name, queue in self.model.queues.items():
            for priority, lane in enumerate(self.registry.queue(name).lanes):
                ready = [one for one in queue.those(READY) if one.priority == priority]
                for first, end in lane.ready_ranges():
                    some, ready = ready[: end - first], ready[end - first :]
                    assert self.read(lane, first, end - first) == contents(some)
                    returned = [returns_in(lane)[at] for at in range(first, end)]
                    assert returned == [one.returned for one in some]
        for name, stream in self.model.streams.items():
            there = self.registry.stream(name)
            count = there.end - there.start
            assert self.read(there.lane, there.start, count) == contents(
                stream.messages[there.start :]
            )


@settings(max_examples=100, stateful_step_count=60)
class Vhosts(Crashing):
    """All that can be declared, and deleted."""

    @rule(
        peer=st.integers(0, 1), data=st.data(), same=st.booleans(),
        goes=st.sampled_from([False, False, False, True]),
        kind=st.sampled_from(
            ["queue"] * 3 + ["stream", "exchange", "binding", "import", "permission"]
        ),
    )  # fmt: skip
    def define(self, peer: int, data: st.DataObject, same: bool, goes: bool, kind: str) -> None:
        if kind == "import":
            self.import_definitions(peer, data.draw(imports), same)
        elif goes:
            self.delete(peer, data, kind)
        elif kind == "permission":
            self.set_permission(data.draw(permissions))
        else:
            self.declare(peer, data.draw(WANTED[kind]), same)

    def delete(self, peer: int, data: st.DataObject, kind: str) -> None:
        unused = data.draw(st.booleans())
        if kind == "queue":
            there = list(self.model.queues) or ["s"]
            name = data.draw(st.sampled_from(there) | members)
            self.delete_queue(peer, name, if_empty=data.draw(st.booleans()), if_unused=unused)
        elif kind == "stream":
            self.delete_stream(data.draw(st.sampled_from(["c", "s"])))
        elif kind == "exchange":
            self.delete_exchange(data.draw(exchanges), unused)
        elif kind == "permission":
            self.clear_permission(data.draw(st.sampled_from(["shop", "crm", "bi"])))
        else:
            bound = self.model.routes.bindings
            wanted = st.sampled_from(bound) | bindings if bound else bindings
            self.unbind(peer, data.draw(wanted))


@settings(max_examples=100, stateful_step_count=60)
class LimitedQueues(Crashing):
    """Queues that have limits, and lead to one another."""

    @initialize(queues=st.lists(limited, min_size=2, max_size=3))
    def begin(self, queues: list[QueueDefinition]) -> None:
        super().begin(everything=True, queues=queues)


SLOW = [pytest.mark.slow, pytest.mark.timeout(300)]
TestVhosts = Vhosts.TestCase
TestLimitedQueues = LimitedQueues.TestCase
TestVhosts.pytestmark = TestLimitedQueues.pytestmark = SLOW  # type: ignore[attr-defined]
