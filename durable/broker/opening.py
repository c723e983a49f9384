"""Opens a vhost: reads its log into a registry, then runs everything until the block ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from mesh.nursery import running

from ..config import BrokerConfig
from ..errors import StoreError, StoreFull
from ..log.bodies import encode_acks
from ..log.encryption import Encryption
from ..log.log import Log, open_log
from ..log.real_disk import RealDisk
from ..log.record import Draft, Kind
from ..log.report import LogGap
from ..vhost.bodies import Bodies
from ..vhost.checkpointing import Checkpointing
from ..vhost.publishers import Publishers
from ..vhost.registry import Registry
from ..vhost.replay import Replay
from ..vhost.vhost import Vhost
from .auto_deletion import final_write_scope
from .checkpoints import Checkpointer, load_checkpoints
from .clock import SteadyClock
from .compaction import compact
from .dead_lettering import DeadLettering
from .directory import LOG_FOLDER, vhost_path
from .listing import run_steps
from .running_vhost import RunningVhost
from .upkeep import run_auto_deletions, run_upkeep, sample_rates

logger = logging.getLogger("durable")


@asynccontextmanager
async def open_vhost(
    data: Path, name: str, config: BrokerConfig, encryption: Encryption, clock: SteadyClock
) -> AsyncGenerator[RunningVhost]:
    """Open a vhost that has been made, for as long as the block lasts. Raises what `open_log` raises if it
    cannot be opened."""
    path = str(vhost_path(data, name) / LOG_FOLDER)
    async with _recovered(path, config, encryption) as (log, disk, replay):
        replay.finish(log, clock.now_us(), log.report.gaps)
        for missing in replay.lost_messages(log.report):
            logger.error("%s: %s", path, missing)
        for unreadable in replay.registry.permissions.invalid_patterns():
            logger.error("%s: %s", path, unreadable)
        registry, bodies = replay.registry, Bodies(config.recent_bytes, config.memory_bytes)
        vhost = Vhost(name, registry, replay.publishers, log, bodies)
        running_vhost, snapshot = RunningVhost(vhost, log, clock), vhost.snapshot()
        # Nobody has access yet, so nothing can be declared meanwhile.
        await run_steps(snapshot.steps())
        drafts = vhost.drafts(snapshot, clock.now_us())
        log.keep_for_snapshot(sum(draft.size_bytes for draft in drafts))
        if any(not gap.synced for gap in log.report.gaps):
            await _append_after_gaps(log, clock.now_us())
        checkpointer = Checkpointer(
            running_vhost, disk, Checkpointing(registry), config, covered_end=replay.covered_end
        )
        async with running(
            running_vhost.run, DeadLettering(running_vhost).run,
            partial(run_upkeep, running_vhost, config.idle_s),
            partial(run_auto_deletions, running_vhost, config.idle_s),
            partial(checkpointer.run, config.idle_s), partial(sample_rates, running_vhost),
            partial(compact, running_vhost, config.log.compaction_bytes_per_s),
        ):  # fmt: skip
            try:
                yield running_vhost
            finally:
                # Without it, the next start reads more.
                with final_write_scope(), suppress(StoreError, OSError):
                    await checkpointer.write_last()


async def _append_after_gaps(log: Log, now_us: int) -> None:
    """Append a record in which nothing is settled, before any checkpoint file is written. Its epoch tells later starts
    that this one found the gaps. Without it, they would take them for losses: a file says that all before it was durable
    when it was written. Appended again at each start that still reads the gap, which does no harm."""
    with suppress(StoreFull):
        await log.append([Draft(Kind.ACKS, encode_acks({}), (), now_us)])


@asynccontextmanager
async def _recovered(
    path: str, config: BrokerConfig, encryption: Encryption
) -> AsyncGenerator[tuple[Log, RealDisk, Replay]]:
    """Recover from the checkpoints if they hold; else from the whole log, and the settlements in checkpoints."""
    end: int | None = None
    lost: list[LogGap] = []
    while True:  # At most twice: the second time, only settlements are loaded, which always hold.
        replay = Replay(Registry(config.queues_max), Publishers(config.publishers_max))
        disk = RealDisk(path)
        begin = partial(load_checkpoints, disk, replay=replay, end=end)
        async with open_log(
            disk, config.log, start=begin, visit=replay, encryption=encryption
        ) as log:
            missing = replay.missing(log.report)
            lost += missing
            log.add_lost(lost)
            if replay.is_consistent(log.report, missing):
                yield log, disk, replay
                return
            logger.warning(
                "%s: reading the whole log instead of checkpoints, which do not match what was "
                "found: %s", path, log.report,
            )  # fmt: skip
            end = log.report.found_end
