"""Options: what they mean, and what is said when they mean nothing."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable.errors import RecordDamaged
from spark.capture.contents import RecordDigest
from spark.capture.decryption import KeyFiles
from spark.capture.options import READERS, Options, check_batch, check_streaming, read_options
from spark.capture.progress import Progress, from_json
from spark.capture.topics import Topics
from spark.errors import (
    CaptureError,
    ContradictoryOptions,
    InvalidOption,
    OptionError,
    UnknownOption,
    said,
)
from spark.options import read_moment
from spark.sink import options as sink


def read(**given: str) -> Options:
    return read_options({"path": "data", **{name.lower(): value for name, value in given.items()}})


def test_every_option_is_a_field_and_the_other_way_round() -> None:
    named = {field for field, _ in READERS.values()}
    assert named | {"keys", "given"} == {one.name for one in fields(Options)}


def test_values() -> None:
    found = read(
        streams="a, b", subscribe="orders.*.x,audit.>", maxPartitionBytes="64MB", damaged="Keep",
        startingTimestamp="1750000000000", endingTimestamp="2026-01-31T12:00:00+01:00",
        includeHeaders="TRUE", minPartitions="3",
    )  # fmt: skip
    assert found.streams == ("a", "b")
    assert found.subscribe == ("orders.*.x", "audit.>")
    assert found.max_partition_bytes == 64 << 20
    assert (found.starting_us, found.ending_us) == (1_750_000_000_000_000, 1_769_857_200_000_000)
    assert found.include_headers
    assert found.damaged == "keep"
    offsets = read(endingOffsets='{"jobs": {"0": 5, "1": -1}}').ending_offsets
    assert offsets == {"jobs": {0: 5, 1: -1}}
    assert (found.min_partitions, found.vhost, found.fail_on_data_loss) == (3, "/", True)
    assert read(endingTimestamp="2026-01-31T12:00:00").ending_us == 1_769_860_800_000_000, "UTC"


def test_names_with_commas_are_given_as_json() -> None:
    """Found: `--queue 'a,b'` read queues a and b, and not the one of that name."""
    found = read(queues='["a,b", "c"]', subscribe='["x,y.>"]', streams="[odd], b")
    assert found.queues == ("a,b", "c")
    assert found.subscribe == ("x,y.>",)
    assert found.streams == ("[odd]", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", ""), ("vhost", ""), ("streams", "a,,b"), ("streams", ""), ("queues", "[]"),
        ("queues", '["a", 3]'), ("queues", '["a", ""]'), ("subscribe", '["a..b"]'), ("subscribe", "orders..x"), ("subscribe", "a.>.b"), ("subscribe", "a.+"),
        ("subscribePattern", "("), ("startingOffsets", "newest"), ("startingOffsets", "{}"),
        ("startingOffsets", '{"a": 3}'), ("startingOffsets", '{"a": {"0": -3}}'),
        ("startingOffsets", '{"a": {"10": 1}}'), ("endingOffsets", "[" * 100_000),
        ("startingTimestamp", "yesterday"), ("startingTimestamp", "-1"), ("includeHeaders", "yes"),
        ("ordering", "topic"), ("maxPartitionBytes", "0"), ("maxPartitionBytes", "1.5g"),
        ("minPartitions", "0"), ("batchRows", "many"), ("maxOffsetsPerTrigger", "-5"),
        ("damaged", "ignore"), ("failOnDataLoss", "1"), ("batchRows", "1" * 5000),
        ("startingOffsets", '{"a": {"0": 1e400}}'), ("startingOffsets", '{"a": {"0": Infinity}}'),
        ("startingOffsets", '{"a": {"0": 1.5}}'), ("startingOffsets", '{"a": {"0": true}}'), ("subscribePattern", "(" * 5000),
        ("subscribePattern", f"a{{{2**64}}}"),
    ],
)  # fmt: skip
def test_impossible_values_are_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        read_options({"path": "data", name.lower(): value})
    assert str(caught.value).startswith(f"option {name} is ")
    assert "want" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_options_name_the_one_that_was_meant() -> None:
    with pytest.raises(
        UnknownOption, match="no option 'subscribepatern': did you mean subscribePattern"
    ) as caught:
        read(subscribePatern="x")
    assert caught.value.nearest == "subscribePattern"
    with pytest.raises(
        UnknownOption, match=r"no option 'kafka\.servers': the options are path, vhost"
    ):
        read(**{"kafka.servers": "x"})


def test_keys_are_files_and_nothing_else_of_joining_is_an_option() -> None:
    assert read().keys == KeyFiles()
    assert read(**{"mesh.network_secret_file": "a"}).keys == KeyFiles(network_secret_file=Path("a"))
    assert read(**{"mesh.keys_dir": "b"}).keys == KeyFiles(keys_dir=Path("b"))
    with pytest.raises(InvalidOption, match="a file") as caught:
        read(**{"mesh.network_secret": "mesh-network-1-abc"})
    assert "abc" not in str(caught.value)
    with pytest.raises(UnknownOption, match=r"mesh\.seeds"):
        read(**{"mesh.seeds": "tcp://a:1"})
    with pytest.raises(UnknownOption, match=r"did you mean mesh\.keys_dir"):
        read(**{"mesh.key_dir": "b"})


@pytest.mark.parametrize(
    "given",
    [
        {"mesh.network_secret_file": "a", "mesh.keys_dir": "b"},
        {"subscribe": "a", "subscribePattern": "a"},
        {"startingOffsets": "earliest", "startingTimestamp": "1"},
        {"endingOffsets": "latest", "endingTimestamp": "1"},
        {"startingTimestamp": "2", "endingTimestamp": "1"},
        {"startingOffsets": '{"a": {"0": 2}}', "endingOffsets": '{"a": {"0": 1}}'},
        {"maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"},
    ],
)
def test_contradictions(given: dict[str, str]) -> None:
    with pytest.raises(ContradictoryOptions) as caught:
        read(**given)
    assert all(name in str(caught.value) for name in caught.value.names)


def test_what_is_for_the_other_kind_of_query() -> None:
    for given in (
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"maxOffsetsPerTrigger": "5"},
    ):
        check_streaming(read(startingOffsets="latest"))
        with pytest.raises(OptionError):
            check_batch(read(**given))
    for given in ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}):
        check_batch(read(**given))
        with pytest.raises(ContradictoryOptions, match="a stream has no end"):
            check_streaming(read(**given))


def test_topics() -> None:
    everything = ["orders", "orders.eu", "orders.eu.created", "audit.eu"]

    def accepted(**given: object) -> list[str]:
        return [one for one in everything if Topics(**given)(one)]  # type: ignore[arg-type]

    assert accepted(patterns=("orders.>",)) == ["orders.eu", "orders.eu.created"]
    assert accepted(patterns=(">",)) == everything
    assert accepted(patterns=("*.eu", "orders")) == ["orders", "orders.eu", "audit.eu"]
    assert accepted(expression="orders.*") == everything[:3]
    assert accepted(expression="orders") == ["orders"]
    assert accepted(allowed_sets=[frozenset({"orders", "audit.eu"})], prefixes=["o"]) == ["orders"]
    assert accepted() == everything
    assert Topics().accepts_all
    assert not Topics(prefixes=["x"]).accepts_all


def test_progress_survives_json() -> None:
    found = Progress(
        "5f", 30, ((1, 9), (20, 40)), {3: 120}, since_us=7, last=RecordDigest(29, "9b")
    )
    assert from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.advanced_to(35, None) == Progress("5f", 35, ((20, 40),), {3: 120}, since_us=7)
    for wrong in (
        {},
        {"store": "x"},
        {"store": "x", "position": "y"},
        {"position": 1},
        {"store": "x", "position": 1, "absent": [1]},
        {"store": "x", "position": 1, "since": "noon"},
        {"store": "x", "position": 1, "last": [1]},
    ):
        with pytest.raises(CaptureError, match="not written by mesh-capture"):
            from_json(wrong)


@pytest.mark.parametrize(
    ("gone", "missed"),
    [
        ([(1, 9)], []),
        ([(4, 9), (20, 30), (30, 40)], []),
        ([(1, 12)], [(9, 12)]),
        ([(5, 25), (39, 41)], [(9, 20), (40, 41)]),
        ([(0, 50)], [(0, 1), (9, 20), (40, 50)]),
        ([(9, 20), (41, 42)], [(9, 20), (41, 42)]),
    ],
)
def test_only_what_was_there_at_the_beginning_can_be_missed(
    gone: list[tuple[int, int]], missed: list[tuple[int, int]]
) -> None:
    assert Progress("5f", 30, ((1, 9), (20, 40))).missed(gone) == missed


def test_what_an_error_said_is_found_in_what_spark_makes_of_it() -> None:
    stack = "[X] An exception:\nTraceback:\n  File\nspark.errors.InvalidOption: option a is 'b': want c\n\nmore"
    assert said(RuntimeError(stack)) == "option a is 'b': want c"
    assert said(RuntimeError("durable.errors.NewerFormat: x has\n")) == "x has"
    for one in ("mesh.errors.InvalidName", "security.errors.KeyMissing", "discovery.errors.Any"):
        assert said(RuntimeError(f"Traceback:\n{one}: a b\n")) == "a b", "Found: only two of five"
    assert said(RecordDamaged("gap", 3)) == str(RecordDamaged("gap", 3))
    assert said(RuntimeError("spark is slow")) is None


def test_times_of_commands_are_utc_unless_they_say_otherwise() -> None:
    second = round(datetime(2026, 11, 21, 20, 15, tzinfo=UTC).timestamp())
    for text in (
        "2026-11-21T20:15:00",
        "2026-11-21T22:15:00+02:00",
        "2026-11-21 20:15",
        str(second),
    ):
        assert read_moment("--from", text) == second * 1_000_000
    for text in ("", "yesterday", "12", "9" * 30):
        with pytest.raises(InvalidOption, match="--from"):
            read_moment("--from", text)


@pytest.mark.parametrize("name", sorted({*READERS, *sink.READERS}))
def test_the_page_has_every_option(name: str) -> None:
    """Found: two of the sink's were told to who misspelt one, and nowhere else."""
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row for row in rows)
