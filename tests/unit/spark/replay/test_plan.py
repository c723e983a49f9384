"""What people may ask of a replay, read and checked; nothing here needs Spark."""

from __future__ import annotations

from typing import Any

import pytest

from spark.errors import ContradictoryOptions, InvalidOption
from spark.replay.plan import (
    QUEUES,
    TOPICS,
    Destination,
    ReplayPlan,
    read_destination,
    read_duration,
    read_number,
)

TO = Destination(QUEUES, "broker2")


def plan(**fields: Any) -> ReplayPlan:
    return ReplayPlan(**{"directory": "orders.data", "to": TO, **fields})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("broker2", TO),
        (">", Destination(TOPICS)),
        ("replayed.>", Destination(TOPICS, "", "^", "replayed.")),
        ("s/^orders/test/", Destination(TOPICS, "", "^orders", "test")),
        (r"s/a\/(b)/\1/", Destination(TOPICS, "", "a/(b)", "$1")),
        ("$0x.>", Destination(TOPICS, "", "^", r"\$0x.")),
        ("back\\slash.>", Destination(TOPICS, "", "^", r"back\\slash.")),
        ("s/^/$SYS./", Destination(TOPICS, "", "^", r"\$SYS.")),
        (r"s/(a)/\12\\\\1\x/", Destination(TOPICS, "", "(a)", r"$1\2\\\\1x")),
        (r"s/\(?P/x/", Destination(TOPICS, "", r"\(?P", "x")),
    ],
)
def test_destinations(text: str, found: Destination) -> None:
    """Found: `--to '$0x.>'` sent under x.jobs, for a prefix was handed to Java as a replacement."""
    assert read_destination(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "Broker", "a b", "s/a/b", "s/(/b/", "a.*.>", "s//x/", "*",
        "s/(?P<a>jobs)/x/", r"s/\\(?P<a>jobs)/x/", "s/(?#why)a/x/", r"s/(a)/\2/",
        f"s/{'(' * 5000}/x/", f"s/a{{{2**64}}}/x/",
    ],
)  # fmt: skip
def test_no_destination(text: str) -> None:
    """Found: what Python knows and Java does not failed when the replay had begun; what is too large for
    Python was a stack."""
    with pytest.raises(InvalidOption, match="--to") as caught:
        read_destination(text)
    assert "\n" not in str(caught.value)


def test_durations_have_units() -> None:
    assert [read_duration("x", text) for text in ("5s", "200ms", "2m", "1.5h", "7")] == [
        5.0, 0.2, 120.0, 5400.0, 7.0,
    ]  # fmt: skip
    for text in ("", "0s", "-5s", "5 parsecs", "1e9"):
        with pytest.raises(InvalidOption):
            read_duration("--max-gap", text)


@pytest.mark.parametrize("text", ["0", "-1", "1.01", "nan", "inf", "much"])
def test_numbers_have_bounds(text: str) -> None:
    with pytest.raises(InvalidOption, match="more than 0"):
        read_number("--sample", text, 1.0)


@pytest.mark.parametrize(
    "wrong", [{"sample": 4e-7}, {"sample": 1.1}, {"loop": 1_000_001}, {"loop": 0}]
)
def test_what_would_be_rounded_away_or_cut_is_refused(wrong: dict[str, Any]) -> None:
    """Found: so small a share sent nothing with status 0, more loops than a million were a million."""
    (name,) = wrong
    with pytest.raises(InvalidOption, match=f"--{name}"):
        plan(**wrong).check()
    plan(sample=1e-6, loop=1_000_000).check()


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"where": "topic = '\udcff'"}, "--where"),
        ({"id": "\udcff"}, "--id"),
        ({"to": Destination(TOPICS, "", "\udcff", "x")}, "--to"),
    ],
)
def test_what_is_no_text_is_said(wrong: dict[str, Any], option: str) -> None:
    """Found: a stack trace, of what Spark is told it in."""
    with pytest.raises(InvalidOption, match=f"{option} is .*: want text, UTF-8"):
        plan(**wrong).check()


def test_what_contradicts_is_said() -> None:
    with pytest.raises(ContradictoryOptions, match="--max-gap"):
        plan(max_gap_s=5.0).check()
    with pytest.raises(ContradictoryOptions, match="--until"):
        plan(from_us=7, until_us=7).check()
    plan(max_gap_s=5.0, speed=1.0, from_us=6, until_us=7).check()


def test_the_name_of_a_replay_changes_with_what_it_selects_and_with_nothing_else() -> None:
    same = [
        plan(),
        plan(speed=3.0),
        plan(rate=9.0),
        plan(id="x"),
        plan(until_us=9),
        plan(directory="d"),
    ]
    assert len({one.digest() for one in same}) == 1
    other = [
        plan(topic="a.>"), plan(where="true"), plan(sample=0.5), plan(from_us=1), plan(again=True),
        plan(to=Destination(TOPICS)), plan(queues=("a",)), plan(streams=("a",)), plan(vhost="v"),
    ]  # fmt: skip
    assert len({one.digest() for one in [*same, *other]}) == len(other) + 1
    names = {plan().sink_options("r", loop, 2)["id"] for loop in range(3)}
    assert len(names) == 3


def test_options_of_source_and_sink() -> None:
    found = plan(streams=("a", "b"), topic="x.>", from_us=1_500_000, rate=10.0, speed=2.0)
    source = found.source_options(3)
    assert source["streams"] == '["a", "b"]'
    assert source["subscribe"] == '["x.>"]'
    assert source["startingTimestamp"] == "1970-01-01T00:00:01.500000+00:00"
    assert (source["ordering"], source["minPartitions"]) == ("queue", "3")
    sink = found.sink_options("r", 0, 2)
    assert (sink["ratePerTask"], sink["speed"], sink["broker"]) == ("5.0", "2.0", "broker2")


def test_a_share_is_drawn_by_where_a_row_was_captured() -> None:
    assert plan().sample_sql() is None
    assert (plan(sample=0.25).sample_sql() or "").endswith("1000000) < 250000")
