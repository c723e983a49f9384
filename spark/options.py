"""What reading the options of both formats has in common.

Spark hands over text by names in lower case; errors use the names people write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from mesh.errors import InvalidName
from mesh.names import TOPIC_BYTES_MAX, check_pattern
from mesh.times import EPOCH, read_time, since_epoch_us

from .errors import ContradictoryOptions, InvalidOption, UnknownOption
from .settings import JOINING, read_setting

Reader = Callable[[str, str], Any]
"""From the name of an option and its text to its value. Raises InvalidOption."""
Readers = Mapping[str, tuple[str, Reader]]
"""By the name of an option: the field that it goes to, and what reads it."""


class Given(NamedTuple):
    """What was set, and nothing else."""

    values: dict[str, Any]
    """By field."""
    settings: dict[str, Any]
    """Of a node: options that begin with `JOINING`, without it."""
    names: frozenset[str]
    """Of the options in `values`."""


def read_given(
    options: Mapping[str, str],
    readers: Readers,
    settings: Collection[str],
    ignored: Collection[str] = (),
) -> Given:
    """Each option on its own.

    Args:
        settings: names of the settings of a node that may be given.
        ignored: names in lower case of options that are not ours.
    Raises:
        UnknownOption, InvalidOption, ContradictoryOptions: each in one line.
    """
    by_lower = {name.lower(): name for name in readers}
    values: dict[str, Any] = {}
    joining: dict[str, Any] = {}
    names: set[str] = set()
    for name, text in options.items():
        lower = name.lower()
        if lower.startswith(JOINING):
            setting = lower.removeprefix(JOINING)
            joining[setting] = read_setting(setting, text, settings)
        elif lower in by_lower:
            known = by_lower[lower]
            if known in names:
                raise ContradictoryOptions((known, name), "both are the same option: give it once")
            into, read = readers[known]
            values[into] = read(known, text)
            names.add(known)
        elif lower not in ignored:
            raise UnknownOption(name, [*readers, *(JOINING + one for one in settings)])
    return Given(values, joining, frozenset(names))


def check_text(name: str, text: str) -> str:
    """Raises InvalidOption: it has bytes in it that are none, as an argument of a shell may."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(name, text, "text, UTF-8") from None
    return text


def check_regex(name: str, text: str) -> re.Pattern[str]:
    """Raises InvalidOption: it is no regular expression, or too large for one."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(name, text[:80], f"a regular expression: {error}") from None


def whole_numbers(text: str) -> Any:
    """JSON, in which numbers with a fraction, NaN and infinities are text, of which `int` makes none.

    Raises:
        ValueError, RecursionError: it is no JSON, or nested too deeply.
    """
    return json.loads(text, parse_float=str, parse_constant=str)


def flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(name, text, "true or false")
    return text.lower() == "true"


def choice(*allowed: str) -> Reader:
    """One of these, in whatever case it is written."""

    def read(name: str, text: str) -> str:
        if text.lower() not in allowed:
            raise InvalidOption(name, text, " or ".join(allowed))
        return text.lower()

    return read


def name_by(check: Callable[[str], object]) -> Reader:
    """A name of the mesh, for which `check` raises InvalidName where it is none."""

    def read(name: str, text: str) -> str:
        check_text(name, text)
        try:
            check(text)
        except InvalidName as error:
            wanted = str(error).partition("want ")[2] or f"{TOPIC_BYTES_MAX} bytes at most"
            raise InvalidOption(name, text, wanted) from None
        return text

    return read


read_pattern = name_by(check_pattern)


def iso(at_us: int) -> str:
    """Raises OverflowError: no calendar has it."""
    return (EPOCH + timedelta(microseconds=at_us)).isoformat()


def read_moment(name: str, text: str) -> int:
    """us since 1970, of ISO 8601 or seconds; without a zone it is UTC. Raises InvalidOption."""
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text) and len(text.partition(".")[0]) > 8:
            found = datetime.fromtimestamp(float(text), UTC)
        else:
            found = read_time(text)
        at_us = since_epoch_us(found)
        iso(at_us)  # In UTC it may be of the year 0, or 10,000.
        return at_us
    except (ValueError, OverflowError, OSError):
        allowed = "a time as 2026-11-21T20:15:00, UTC unless it has a zone, or seconds since 1970"
        raise InvalidOption(name, text, allowed) from None
