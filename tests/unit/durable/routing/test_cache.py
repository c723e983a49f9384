"""The bounded memory of answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from durable.routing.cache import Cache


def kept(cache: Cache[Any, Any]) -> int:
    return len(cache.young.keys() | cache._old.keys())


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=200), st.integers(1, 20))
def test_says_what_was_put_and_never_grows_over_its_limit(
    steps: list[tuple[int, bool]], weight_max: int
) -> None:
    cache: Cache[int, str] = Cache(weight_max)
    for key, put in steps:
        found = cache.get(key)
        assert found in (None, str(key))
        if put and found is None:
            cache.put(key, str(key))
            assert cache.get(key) == str(key)
        assert kept(cache) <= max(2, weight_max)


def test_what_is_in_use_survives_a_flood() -> None:
    cache: Cache[str, int] = Cache(10)
    cache.put("used", 1)
    for number in range(100):
        cache.put(f"flood {number}", number)
        assert cache.get("used") == 1
    assert cache.get("flood 0") is None


def test_half_of_what_fits_is_there_at_any_time() -> None:
    cache: Cache[int, int] = Cache(10)
    for number in range(100):
        cache.put(number, number)
        assert all(
            last in cache._old or last in cache.young
            for last in range(number, number - 5, -1)
            if last >= 0
        )


def test_weight_counts_and_what_is_too_heavy_is_not_kept() -> None:
    cache: Cache[str, str] = Cache(20, len)
    cache.put("heavy", "x" * 11)
    assert cache.get("heavy") is None
    for name in "abcdef":
        cache.put(name, "x" * 5)
    assert kept(cache) <= 4


def test_clear_forgets_everything_and_keeps_the_dict() -> None:
    cache: Cache[str, int] = Cache(2)
    young = cache.young
    for name in "abc":
        cache.put(name, 1)
    cache.clear()
    assert young is cache.young
    assert [cache.get(name) for name in "abc"] == [None] * 3
    assert kept(cache) == 0
