"""What may be asked of the sink, and one line for what may not."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

from spark.errors import ContradictoryOptions, InvalidOption, OptionError, UnknownOption
from spark.sink.options import read_sink_options


def test_settings_of_the_node_are_read_as_in_its_environment() -> None:
    found = read_sink_options({"mesh.seeds": "tcp://a:1,tcp://b:2", "mesh.zeroconf": "false"})
    assert found.joining == {"seeds": ("tcp://a:1", "tcp://b:2"), "zeroconf": False}


def test_names_come_in_lower_case() -> None:
    found = read_sink_options({"ratepertask": "5", "to": "streams", "checkpointlocation": "x"})
    assert (found.rate, found.to) == (5.0, "queues")
    assert found.paced


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"speeed": "1"}, UnknownOption, "did you mean speed"),
        ({"mesh.sedes": "1"}, UnknownOption, "did you mean mesh.seeds"),
        ({"to": "kafka"}, InvalidOption, "topics, queues"),
        ({"speed": "-1"}, InvalidOption, "0 or more"),
        ({"lanes": "[1]"}, InvalidOption, "want JSON"),
        ({"lanes": '{"jobs/0": 7}'}, InvalidOption, "want JSON"),
        ({"speed": "nan"}, InvalidOption, "0 or more"),
        ({"ratePerTask": "fast"}, InvalidOption, "0 or more"),
        ({"topic": "a b"}, InvalidOption, "tokens"),
        ({"topic": "a" * 256}, InvalidOption, "want at most 255 bytes"),
        ({"topic": "a\udc80"}, InvalidOption, "want text, UTF-8"),
        ({"broker": "No"}, InvalidOption, "a-z"),
        ({"mandatory": "maybe"}, InvalidOption, "true or false"),
        ({"startMicros": "-3"}, InvalidOption, "microseconds since 1970"),
        ({"pauses": "[[5, 1], [2, 3]]"}, InvalidOption, "sorted"),
        ({"pauses": "{"}, InvalidOption, "sorted"),
        ({"pauses": "[[1e400, 1]]"}, InvalidOption, "sorted"),
        ({"pauses": "[[1, 1.5]]"}, InvalidOption, "sorted"),
        ({"pauses": "[[1, 9223372036854775808]]"}, InvalidOption, "sorted"),
        ({"startMicros": "1" * 5000}, InvalidOption, "microseconds since 1970"),
        ({"mesh.zeroconf": "perhaps"}, InvalidOption, "true or false"),
        ({"id": ""}, InvalidOption, "some text"),
        ({"queue": "jobs"}, ContradictoryOptions, "to=queues"),
        ({"exchange": "x", "to": "queues"}, ContradictoryOptions, "to=exchange"),
        ({"topic": "a", "to": "queues"}, ContradictoryOptions, "have its name as the key"),
        ({"numbering": "offsets"}, ContradictoryOptions, "needs an id"),
        ({"speed": "10"}, ContradictoryOptions, "startMicros"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    options: dict[str, str], error: type[OptionError], text: str
) -> None:
    """Found: of a topic that is too long or no text "want", and no word more."""
    with pytest.raises(error, match=text) as caught:
        read_sink_options(options)
    assert "\n" not in str(caught.value)


def test_a_secret_is_no_option_and_is_not_shown() -> None:
    with pytest.raises(InvalidOption, match="a file") as caught:
        read_sink_options({"mesh.network_secret": "mesh-network-1-abc"})
    assert "abc" not in str(caught.value)
