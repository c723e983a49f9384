"""Telling of a commit that takes too long: a disk that hangs says nothing by itself."""

from __future__ import annotations

import logging
from math import inf

import trio

from mesh.patience import PARTS, next_due
from mesh.waker import Bell, Waker

from .committing import Committer

logger = logging.getLogger("durable.log")


async def report_hanging(committer: Committer, begun: Waker, changed: Bell) -> None:
    """One line for each commit over its time, until the store stops.

    Args:
        begun: woken when a commit has begun.
        changed: rung when one has ended.
    """
    limit_s = committer.config.commit_s_max
    while True:
        commit = committer.commit
        if commit is None or commit.begun_s == inf:
            await begun.wait()
            continue
        begun_s = due_s = commit.begun_s
        for _ in range(PARTS):  # A process that is stopped writes nothing: it spends one of them.
            due_s = next_due(due_s, limit_s / PARTS, trio.current_time())
            await trio.sleep_until(due_s)
            # Where our loop was late, its end may have come in time and be seen in this very turn.
            await trio.lowlevel.checkpoint()
            if committer.stopped:
                return
            # A later one is under way, or this one again, perhaps for as long.
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
