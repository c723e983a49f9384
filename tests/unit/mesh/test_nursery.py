from __future__ import annotations

import pytest
import trio

from mesh.nursery import open_nursery


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("in_block", [True, False])
async def test_one_exception_leaves_as_it_is(in_block: bool) -> None:
    error, context = KeyError(1), ValueError("before it")
    error.__context__ = context
    with pytest.raises(KeyError) as caught:
        async with open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            if in_block:
                raise error
            nursery.start_soon(fail, error)
    assert caught.value is error
    assert error.__context__ is context


async def test_a_group_leaves_as_that_group_of_just_those() -> None:
    """A copy, because trio looks for Cancelled in it."""
    error = KeyError(1)
    with pytest.raises(ExceptionGroup) as caught:
        async with open_nursery():
            raise ExceptionGroup("mine", [error])
    assert (caught.value.message, caught.value.exceptions) == ("mine", (error,))


async def test_several_leave_as_a_group() -> None:
    one, other = KeyError(1), KeyError(2)
    with pytest.raises(ExceptionGroup) as caught:
        async with open_nursery() as nursery:
            nursery.start_soon(fail, one)
            raise other
    assert set(caught.value.exceptions) == {one, other}


async def test_cancelling_is_not_an_exception() -> None:
    with trio.CancelScope() as scope:
        async with open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
    assert scope.cancelled_caught
