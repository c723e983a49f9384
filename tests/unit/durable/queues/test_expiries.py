"""When messages expire, against a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.queues.expiries import Expiries, expiries_us, expiry_us
from durable.queues.ranges import Ranges

ranges = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 3]),  # Messages before that never expire.
        st.integers(1, 4),
        st.sampled_from([100, 100, 200, 1 << 51]),
    ),
    max_size=40,
)
Range = tuple[int, int, int]


def put(expiries: Expiries | Ranges, parts: list[Range]) -> dict[int, int]:
    end, there = 0, dict[int, int]()
    for gap, count, when_us in parts:
        start, end = end + gap, end + gap + count
        expiries.put(start, end, when_us)
        there |= dict.fromkeys(range(start, end), when_us)
    return there


def check(expiries: Expiries, there: dict[int, int], start: int = 0) -> None:
    end = max(there, default=0) + 3
    for at in range(start, end):
        when_us, edge = expiries.lookup(at, end)
        assert when_us == there.get(at, 0)
        assert at < edge <= end
        assert not when_us or all(there.get(one) == when_us for one in range(at, edge))


@given(ranges, st.data())
def test_each_expires_when_it_was_said(parts: list[Range], data: st.DataObject) -> None:
    expiries = Expiries()
    there = put(expiries, parts)
    assert bool(expiries) == bool(there)
    check(expiries, there)
    check(Expiries.decode(b"".join(expiries.encode())), there)
    low = data.draw(st.integers(0, max(there, default=0) + 1))
    expiries.drop_before(low)
    check(expiries, there, low)
    check(Expiries.decode(b"".join(expiries.encode())), there, low)


@given(ranges, ranges)
def test_what_comes_together_expires_as_one_by_one(before: list[Range], parts: list[Range]) -> None:
    each, together = Expiries(), Expiries()
    there = put(each, before + parts)
    put(together, before)
    first = sum(gap + count for gap, count, _ in before)
    end = first + sum(gap + count for gap, count, _ in parts)
    if parts:
        together.put_all(range(first, end), end, [there.get(at, 0) for at in range(first, end)])
    check(together, there)
    assert b"".join(together.encode()) == b"".join(each.encode()) or not parts


@given(ranges)
def test_bytes_from_before_are_read(parts: list[Range]) -> None:
    old = Ranges()
    there = put(old, parts)
    check(Expiries.decode(old.encode()), there)


def test_a_million_of_two_times_in_turn_take_few_bytes() -> None:
    expiries = Expiries()
    for at in range(100_000):
        expiries.put(at, at + 1, 1_700_000_000_000_000 + 37 * at + 60_000_000 * (at % 2))
    assert len(b"".join(expiries.encode())) < 1_200_000


def test_what_is_of_no_use_any_more_takes_nothing() -> None:
    expiries = Expiries()
    for at in range(10_000):
        expiries.put(at, at + 1, 5 + at % 2)
    expiries.drop_before(9_000)
    assert len(b"".join(expiries.encode())) < 60_000
    expiries.drop_before(10_000)
    assert not expiries


def test_bytes_that_are_none_are_refused() -> None:
    for data in (b"", b"123", bytes(11), bytes(40)):
        with pytest.raises(ValueError):  # noqa: PT011
            Expiries.decode(data)


@given(st.integers(0, 1 << 52), st.integers(0, 1 << 52))
def test_nothing_expires_early_or_more_than_a_thousandth_late(time_us: int, ttl_us: int) -> None:
    assert 0 <= expiry_us(time_us, ttl_us) - time_us - ttl_us <= ttl_us // 1000


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 52), st.sampled_from([None, 0, 1, 1023, 1 << 20, 1 << 52])),
        min_size=1,
    )
)
def test_many_at_once_expire_as_each_does(messages: list[tuple[int, int | None]]) -> None:
    headers = [b"%r" % ttl_us for _, ttl_us in messages]
    ttls_us = {one: ttl_us for one, (_, ttl_us) in zip(headers, messages, strict=True)}
    together = expiries_us([time_us for time_us, _ in messages], headers, ttls_us)
    assert together == [
        0 if ttl_us is None else expiry_us(time_us, ttl_us) for time_us, ttl_us in messages
    ]


def test_those_of_one_moment_expire_as_each_does() -> None:
    times_us = [1_700_000_000_000_000 + 100 * at for at in range(50)]
    ttls_us = {b"": None, b"an hour": 3_600_000_000, b"a day": 86_400_000_000}
    headers = [[b"", b"an hour", b"a day"][at % 3] for at in range(50)]
    assert expiries_us(times_us, headers, ttls_us) == [
        0 if (ttl_us := ttls_us[one]) is None else expiry_us(time_us, ttl_us)
        for time_us, one in zip(times_us, headers, strict=True)
    ]


@pytest.mark.parametrize("count", [2, 17, 18, 99, 10_000])
def test_many_of_two_times_in_turn_are_kept_as_one_by_one(count: int) -> None:
    each, together = Expiries(), Expiries()
    for expiries in each, together:
        expiries.put(3, 5, 100)
    when_us = [100 + 7 * (at % 2) for at in range(count)]
    for at in range(count):
        each.put(5 + at, 6 + at, when_us[at])
    together.put_all(range(5, 5 + count), 5 + count, when_us)
    assert b"".join(together.encode()) == b"".join(each.encode())
    assert together.lookup(5 + count - 1, 1 << 20) == (when_us[-1], 5 + count)


def test_what_came_one_after_the_other_expires_together() -> None:
    times = [expiry_us(1_000_000_000 + 300 * at, 60_000_000) for at in range(10_000)]
    assert len(set(times)) < 60
