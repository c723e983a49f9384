"""When a queue that is to go by itself goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from durable.broker.auto_deletion import AutoDeletions
from durable.errors import StoreFull


@dataclass(eq=False)
class Dying:
    """As much of a queue as is asked."""

    died: int
    dead_lettered: int = 0


class Story:
    """AutoDeletions, and a deletion that does as it is told."""

    def __init__(self) -> None:
        self.auto_deletions = AutoDeletions(self.delete)
        self.gone: list[str] = []
        self.refusal: Exception | None = None
        self.before: Callable[[], object] = lambda: None
        self.meanwhile: Callable[[], object] = lambda: None

    async def delete(self, queue: Any, reason: str, *, stays: Callable[[], bool]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.before()
        if not stays():
            self.gone.append(reason)
        self.meanwhile()

    async def added(self, reason: str, *, died: int, stays: bool = False) -> Any:
        queue: Any = Dying(died)
        self.auto_deletions.add(queue, reason, stays=lambda: stays)
        await self.auto_deletions.delete_all()
        return queue


async def test_one_with_nothing_dead_in_it_goes_at_once() -> None:
    story = Story()
    queue = await story.added("unused", died=0)
    assert story.gone == ["unused"]
    assert queue not in story.auto_deletions


async def test_what_dies_after_it_was_to_go_does_not_keep_it() -> None:
    """Else a full one that is published to would never go."""
    story = Story()
    queue = await story.added("unused", died=2)
    queue.died, queue.dead_lettered = 5, 1
    await story.auto_deletions.delete_all()
    await story.auto_deletions.delete(queue)
    assert not story.gone
    queue.dead_lettered = 2
    await story.auto_deletions.delete_all()
    assert story.gone == ["unused"]


async def test_one_that_cannot_be_deleted_is_tried_again() -> None:
    story = Story()
    story.refusal = StoreFull(1, 2, 0)
    queue = await story.added("unused", died=0)
    assert queue in story.auto_deletions
    story.refusal = None
    await story.auto_deletions.delete_all()
    assert story.gone == ["unused"]


async def test_one_that_stays_is_forgotten() -> None:
    story = Story()
    queue = await story.added("unused", died=0, stays=True)
    assert queue not in story.auto_deletions
    assert not story.gone


async def test_one_that_is_wanted_again_while_its_deletion_waits_stays() -> None:
    story = Story()
    story.before = lambda: story.auto_deletions.discard(queue)
    queue: Any = Dying(0)
    story.auto_deletions.add(queue, "unused", stays=lambda: False)
    await story.auto_deletions.delete(queue)
    assert not story.gone


async def test_who_came_and_left_while_it_was_looked_at_is_the_last_consumer() -> None:
    """What that one rejected is dead-lettered before it goes, too."""
    story = Story()
    queue = await story.added("first", died=1, stays=True)
    queue.died = 2
    story.meanwhile = lambda: story.auto_deletions.add(queue, "second", stays=lambda: False)
    queue.dead_lettered = 1
    await story.auto_deletions.delete_all()
    story.meanwhile = lambda: None
    assert queue in story.auto_deletions
    await story.auto_deletions.delete_all()
    assert not story.gone
    queue.dead_lettered = 2
    await story.auto_deletions.delete_all()
    assert story.gone == ["second"]
