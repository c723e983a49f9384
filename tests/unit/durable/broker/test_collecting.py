"""What a broker's own process does with the garbage collector, and a process of others does not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from durable.broker.collecting import FREEZE_MIN, NEVER_THRESHOLD, RARE_THRESHOLD, Collector

THRESHOLDS = (700, 10, 10)


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each time."""
    times: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    return times


def test_in_a_process_of_its_own_nothing_old_is_looked_at_while_it_grows(frozen: list[int]) -> None:
    collector = Collector(own_process=True)
    with pytest.raises(ValueError, match="a test"), collector.growing():
        assert gc.get_threshold() == (700, 10, NEVER_THRESHOLD)
        with collector.growing():  # Of another vhost.
            pass
        assert gc.get_threshold() == (700, 10, NEVER_THRESHOLD)
        raise ValueError("a test")
    assert gc.get_threshold() == THRESHOLDS
    assert not frozen


def test_in_a_process_of_its_own_full_collections_are_rare_as_long_as_it_serves(
    frozen: list[int],
) -> None:
    collector = Collector(own_process=True)
    with pytest.raises(ValueError, match="a test"), collector.serving():
        assert gc.get_threshold() == (700, 10, RARE_THRESHOLD)
        with collector.growing():
            assert gc.get_threshold() == (700, 10, NEVER_THRESHOLD)
        assert gc.get_threshold() == (700, 10, RARE_THRESHOLD)
        raise ValueError("a test")
    assert gc.get_threshold() == THRESHOLDS


@pytest.mark.parametrize(("entries", "times"), [(0, 0), (FREEZE_MIN - 1, 0), (FREEZE_MIN, 1)])
def test_what_is_much_and_has_come_to_stay_is_left_out_from_then_on(
    frozen: list[int], entries: int, times: int
) -> None:
    with Collector(own_process=True).growing() as freeze:
        freeze(entries)
    assert len(frozen) == times


def test_the_collector_of_an_application_is_its_own(frozen: list[int]) -> None:
    collector = Collector()
    with collector.serving(), collector.growing() as freeze:
        assert gc.get_threshold() == THRESHOLDS
        freeze(FREEZE_MIN)
    assert not frozen
