"""Names of folders after topics."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from spark.folders import NO_TOPIC, folder

NAME_BYTES_MAX = 255


@pytest.mark.parametrize("topic", ["orders.eu", "x" * 249, "ä" * 41, "a/b.%"])
def test_a_topic_that_fits_is_its_folder(topic: str) -> None:
    assert folder(topic) == topic


@pytest.mark.parametrize("topic", ["\0", "a\0b", NO_TOPIC])
def test_a_topic_that_is_no_folder_has_another(topic: str) -> None:
    assert "\0" not in folder(topic)
    assert folder(topic) not in (topic, NO_TOPIC)


@pytest.mark.parametrize("one", ["x", "ä", "\U0001f600", "/"])
def test_a_topic_that_does_not_fit_is_shortened_and_stays_one_of_its_own(one: str) -> None:
    """Found: `File name too long`, and of the messages behind it none was written."""
    topics = [one * 50 + "y" * length for length in range(205 // len(one.encode()) + 1)]
    topics = [topic for topic in topics if len(topic.encode()) <= NAME_BYTES_MAX]
    topics.append(one * (NAME_BYTES_MAX // len(one.encode())))
    names = {folder(topic) for topic in topics}
    assert len(names) == len({*topics})
    assert max(len(f"topic={quote(name, safe='')}") for name in names) <= NAME_BYTES_MAX
