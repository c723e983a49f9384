"""A log against a plain list, crashes included: hypothesis chooses what happens.

Oracle: a dict of log position to what was appended. Everything below `durable_end` must be there after
any crash, nothing that was not appended may be, and positions are never given twice to survivors.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from durable.log.encryption import Encryption
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.record import Draft
from security.at_rest import OVERHEAD_BYTES
from tests.full_logs import remove
from tests.logs import PlainLog, acks, definitions, encryption, publish

drafts = st.lists(
    st.one_of(
        st.builds(publish, st.integers(0, 99), st.integers(8, 900)),
        st.builds(acks, st.just(7), st.integers(0, 5), st.integers(6, 9)),
        st.builds(definitions, st.integers(0, 9)),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


class LogMachine(RuleBasedStateMachine):
    encryption: Encryption | None = None

    def __init__(self) -> None:
        super().__init__()
        self.volume = Volume()
        self.log = PlainLog(MemoryDisk(self.volume), encryption=self.encryption)
        self.model: dict[int, Draft] = {}
        self.freed_before = 0
        self.half_written = False

    @rule(drafts=drafts)
    def append(self, drafts: list[Draft]) -> None:
        if self.half_written:
            self.finish()
        end = self.log.committer.end
        try:
            positions = self.log.append(*drafts)
        except ValueError:
            assert (
                sum(
                    draft.size_bytes + (OVERHEAD_BYTES if self.encryption else 0)
                    for draft in drafts
                )
                > self.log.committer.placer.append_bytes_max
            )
            return
        assert positions == range(end, end + len(drafts))
        self.model.update(zip(positions, drafts, strict=True))

    @rule()
    def commit(self) -> None:
        self.finish()
        self.log.commit()
        assert self.log.committer.durable_end == self.log.committer.end

    @rule(steps=st.integers(1, 3))
    def begin_and_take_some_steps(self, steps: int) -> None:
        """A commit that is under way: in the cache, not on the disk."""
        commit = None if self.half_written else self.log.committer.begin(0.0)
        if commit is None:
            return
        everything, commit.steps = commit.steps, commit.steps[:steps]
        self.log.store.carry_out(commit)
        commit.steps = everything
        self.half_written = True

    def finish(self) -> None:
        if self.half_written:
            commit = self.log.committer.commit
            assert commit is not None
            self.log.store.carry_out(commit)
            self.log.committer.done()
            self.half_written = False

    @rule()
    def free_the_oldest(self) -> None:
        if self.half_written:
            return
        gone = self.log.store.segments.unused(self.log.committer.durable_end)[:1]
        self.log.store.segments.remove(gone)
        remove(self.log.store, *[one.number for one in gone])
        for one in gone:
            self.freed_before = one.end

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        self.start_again(self.volume.after_power_cut(Random(seed)), MemoryDisk)

    @rule()
    def kill(self) -> None:
        self.start_again(self.volume, MemoryDisk)

    def start_again(self, volume: Volume, disk: type[MemoryDisk]) -> None:
        durable_end = self.log.committer.durable_end
        epoch = self.log.committer.epoch
        volume.locked = False
        self.volume, self.half_written = volume, False
        self.log = PlainLog(disk(volume), encryption=self.encryption)
        report = self.log.report
        found = {one.position for one in self.log.records()}
        confirmed = {p for p in self.model if self.freed_before <= p < durable_end}
        assert confirmed <= found
        assert {p for gap in report.gaps for p in range(gap.start, gap.end)} == (
            set(range(report.start, report.end)) - found
        )
        assert report.end >= durable_end
        # An epoch that left no record may be given again: nothing has it.
        assert report.epoch >= epoch
        self.model = {p: draft for p, draft in self.model.items() if p in found}

    @invariant()
    def holds_what_is_durable(self) -> None:
        durable_end = self.log.committer.durable_end
        expected = {
            p: (d.kind, d.body)
            for p, d in self.model.items()
            if self.freed_before <= p < durable_end
        }
        found = self.log.contents()
        assert {p: found[p] for p in found if p >= self.freed_before} == expected

    @invariant()
    def reads_from_anywhere(self) -> None:
        found = sorted(self.log.contents())
        for position in found[:: max(1, len(found) // 3)]:
            end = self.log.committer.durable_end
            assert self.log.store.reader.record(position, end).position == position
            rest = [one.position for one in self.log.records(position)]
            assert rest == [p for p in found if p >= position]


class SometimesEncrypted(LogMachine):
    """Switched at any start; what is there is read either way."""

    encryption = encryption()

    @rule(encrypt=st.booleans())
    def switch(self, encrypt: bool) -> None:
        self.encryption = encryption(encrypt=encrypt)
        self.kill()


TestLog = LogMachine.TestCase
TestLogSometimesEncrypted = SometimesEncrypted.TestCase
