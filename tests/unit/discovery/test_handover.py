"""From a foreign thread to trio: merged, bounded, and harmless after the end."""

from __future__ import annotations

import trio

from discovery.handover import Change, Handover


async def test_changes_of_one_instance_merge() -> None:
    handover = Handover(instances_max=10)
    for instance, present in [("a", True), ("a", True), ("b", True), ("b", False), ("c", False)]:
        await trio.to_thread.run_sync(handover.put, instance, present)
    handover.put("c", True)
    assert await handover.take() == {
        "a": Change(present=True, said_goodbye=False),
        "b": Change(present=False, said_goodbye=True),
        "c": Change(present=True, said_goodbye=True),
    }


async def test_over_the_limit_is_dropped_and_counted() -> None:
    handover = Handover(instances_max=2)
    for instance in "abcab":
        handover.put(instance, True)
    assert set(await handover.take()) == {"a", "b"}
    assert handover.dropped == 1
    handover.put("c", True)
    assert set(await handover.take()) == {"c"}


async def test_take_waits_for_the_other_thread(nursery: trio.Nursery) -> None:
    handover = Handover(instances_max=2)
    taken: list[str] = []

    async def take() -> None:
        taken.extend(await handover.take())

    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == []
    await trio.to_thread.run_sync(handover.put, "a", True)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == ["a"]


def test_put_after_the_end_of_trio_is_harmless() -> None:
    made: list[Handover] = []

    async def main() -> None:
        made.append(Handover(instances_max=1))

    trio.run(main)
    made[0].put("a", True)
