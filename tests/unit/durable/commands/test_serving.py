"""How `mesh-broker serve` is told to end."""

from __future__ import annotations

import signal

import trio
import trio.testing

from durable.commands.serving import DONE, STATUSES, _Told


async def test_the_first_signal_says_how_it_ends_and_others_are_taken() -> None:
    """One that nobody takes comes again when nobody waits any more, and cuts the ending short."""
    told, again = _Told(), list[int]()
    before = [signal.signal(number, lambda number, _: again.append(number)) for number in STATUSES]
    try:
        with trio.open_signal_receiver(*STATUSES) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(told.wait, signals)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                    await trio.testing.wait_all_tasks_blocked()
                    signal.raise_signal(number)
                await trio.testing.wait_all_tasks_blocked()
                assert (told.status, told.waiting.cancel_called) == (DONE, True)
                nursery.cancel_scope.cancel()
        assert again == []
    finally:
        for number, handler in zip(STATUSES, before, strict=True):
            signal.signal(number, handler)
