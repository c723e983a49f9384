"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mesh.times import FIRST_US, LAST_US, format_time, parse_time, since_epoch_us, time_at


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01", 0),
        ("2026-11-21T20:15", 1_795_292_100_000_000),
        ("2026-11-21 20:15:00.000001", 1_795_292_100_000_001),
        ("2026-11-21T20:15Z", 1_795_292_100_000_000),
        ("2026-11-21T21:15+01:00", 1_795_292_100_000_000),
        ("0001-01-01T00:00+14:00", -62_135_647_200_000_000),
        ("9999-12-31T23:59:59.999999-14:00", 253_402_351_199_999_999),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, us: int) -> None:
    assert since_epoch_us(parse_time(text)) == us


def test_what_is_written_is_utc_and_says_so() -> None:
    time = parse_time("2026-11-21T20:15")
    assert format_time(time) == "2026-11-21T20:15:00.000000Z"
    assert format_time(time, "milliseconds") == "2026-11-21T20:15:00.000Z"
    assert parse_time(format_time(time)) == time


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-11-21T25:00", "12:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_time(text)


def test_a_time_of_a_calendar_is_exact() -> None:
    assert since_epoch_us(datetime.max.replace(tzinfo=UTC)) == 253_402_300_799_999_999


def test_a_number_that_is_in_no_calendar_is_its_nearest_time() -> None:
    for us in (FIRST_US, -1, 0, 1_795_292_100_000_001, LAST_US):
        assert since_epoch_us(time_at(us)) == us
    assert (time_at(-(2**63)), time_at(2**63 - 1)) == (time_at(FIRST_US), time_at(LAST_US))
