"""Reports commits that take too long, because a disk that hangs reports nothing by itself."""

from __future__ import annotations

import logging
from math import inf

import trio

from mesh.time_limits import PARTS, next_due
from mesh.waker import Bell, Waker

from .committing import Committer

logger = logging.getLogger("durable.log")


async def report_hanging(committer: Committer, begun: Waker, changed: Bell) -> None:
    """Log one line for each commit that exceeds its time limit, until the store stops.

    Args:
        begun: woken when a commit has begun.
        changed: rung when a commit has ended.
    """
    limit_s = committer.config.commit_s_max
    while True:
        commit = committer.commit
        if commit is None or commit.begun_s == inf:
            await begun.wait()
            continue
        begun_s = due_s = commit.begun_s
        # In parts, because a process that is stopped commits nothing: the stop uses up one part at most.
        for _ in range(PARTS):
            due_s = next_due(due_s, limit_s / PARTS, trio.current_time())
            await trio.sleep_until(due_s)
            # If our loop was late, the commit may have ended in time, and its end be handled in this very turn.
            await trio.lowlevel.checkpoint()
            if committer.stopped:
                return
            # Another commit is under way, or this one again: go on with its time, which may be over as well.
            if committer.commit is not commit or commit.begun_s != begun_s:
                break
        else:
            commit.hangs = True
            logger.error(
                "a commit of %d bytes has been under way for %.1f s: the disk hangs or is too slow",
                commit.size_bytes, limit_s,
            )  # fmt: skip
            while committer.commit is commit and commit.begun_s == begun_s:
                await changed.wait()
