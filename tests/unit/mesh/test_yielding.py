"""Yielding the processor: at once where it costs nothing, seldom where others keep it."""

from __future__ import annotations

from mesh.yielding import PAUSE_FACTOR, QUICK_BYTES_MAX, SCHED_YIELD, Yielder, yielder_of_this_run


class Processor:
    """Which others keep for `kept_s` each time it is yielded."""

    def __init__(self) -> None:
        self.now_s = self.kept_s = 0.0
        self.yields = 0

    def sched_yield(self) -> None:
        self.yields += 1
        self.now_s += self.kept_s


def test_where_nobody_waits_it_is_yielded_each_time() -> None:
    processor = Processor()
    yielder = Yielder(processor.sched_yield, lambda: processor.now_s)
    for _ in range(10):
        yielder.yield_processor()
    assert processor.yields == 10


def test_where_others_keep_it_most_of_the_time_stays_ours() -> None:
    processor = Processor()
    yielder = Yielder(processor.sched_yield, lambda: processor.now_s)
    processor.kept_s = 3.0
    while processor.now_s < 1000:
        processor.now_s += 0.5
        yielder.yield_processor()
    assert (
        0
        < processor.yields * processor.kept_s
        <= processor.now_s / (PAUSE_FACTOR + 1) + processor.kept_s
    )
    # Once it is given back at once, it is yielded each time again.
    processor.kept_s, processor.now_s, before = 0.0, processor.now_s + 100, processor.yields
    for _ in range(10):
        yielder.yield_processor()
    assert processor.yields == before + 10


def test_only_for_little_that_was_sent() -> None:
    processor = Processor()
    yielder = Yielder(processor.sched_yield, lambda: processor.now_s)
    for size_bytes in (QUICK_BYTES_MAX + 1, QUICK_BYTES_MAX, 0, 100 * QUICK_BYTES_MAX):
        yielder.sent(size_bytes)
    assert processor.yields == 1


def test_that_of_this_machine_returns() -> None:
    assert SCHED_YIELD() == 0, "as the C library has it"


async def test_all_of_a_run_share_one() -> None:
    assert yielder_of_this_run() is yielder_of_this_run()
