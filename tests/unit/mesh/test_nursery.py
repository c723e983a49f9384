from __future__ import annotations

import pytest
import trio

from mesh.nursery import open_nursery, running


async def test_one_failure_beside_cancellations_leaves_alone() -> None:
    with pytest.raises(KeyError):
        async with open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError


async def interrupt() -> None:
    raise KeyboardInterrupt


async def test_several_interrupts_leave_as_one() -> None:
    """Also where a nursery of trio's own has made a group of some of them."""
    with pytest.raises(KeyboardInterrupt):
        async with open_nursery() as nursery:
            nursery.start_soon(interrupt)
            async with trio.open_nursery() as inner:
                inner.start_soon(interrupt)
                inner.start_soon(interrupt)


async def test_an_interrupt_hides_no_other_failure() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_nursery() as nursery:
            nursery.start_soon(interrupt)
            raise KeyError
    assert {*map(type, caught.value.exceptions)} == {KeyError, KeyboardInterrupt}


async def test_a_group_of_interrupts_that_the_block_raised_stays_one() -> None:
    mine = BaseExceptionGroup("mine", [KeyboardInterrupt(), KeyboardInterrupt()])
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_nursery():
            raise mine
    assert (caught.value.message, caught.value.exceptions) == ("mine", mine.exceptions)


async def test_tasks_go_on_while_a_cancelled_block_cleans_up() -> None:
    asked, answered = trio.Event(), trio.Event()

    async def answer() -> None:
        await asked.wait()
        answered.set()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with running(answer):
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    asked.set()
                    await answered.wait()
    assert scope.cancelled_caught


async def test_a_task_that_fails_ends_the_block() -> None:
    async def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        async with running(fail, trio.sleep_forever):
            await trio.sleep_forever()
