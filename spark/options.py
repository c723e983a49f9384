"""Reading of options, shared by both formats.

Spark passes option names in lower case, and values as text; errors use the spelling of the documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from mesh.errors import InvalidName
from mesh.names import TOPIC_BYTES_MAX, check_pattern
from mesh.times import EPOCH, parse_time, since_epoch_us

from .errors import ContradictoryOptions, InvalidOption, UnknownOption
from .settings import SETTING_PREFIX, read_setting

Reader = Callable[[str, str], Any]
"""Converts an option's text, given its name. Raises InvalidOption."""
Readers = Mapping[str, tuple[str, Reader]]
"""By the name of an option: the field that takes the value, and the function that reads it."""


class GivenOptions(NamedTuple):
    """The options that were set."""

    values: dict[str, Any]
    """Values by field."""
    settings: dict[str, Any]
    """Settings of a node: options that begin with `SETTING_PREFIX`, named without it."""
    names: frozenset[str]
    """Names of the options in `values`."""


def read_given_options(
    options: Mapping[str, str],
    readers: Readers,
    settings: Collection[str],
    ignored: Collection[str] = (),
) -> GivenOptions:
    """Read each option by itself; what contradicts another one is left to the caller.

    Args:
        settings: names of the settings of a node that may be given.
        ignored: names, in lower case, of Spark's own options.
    Raises:
        UnknownOption, InvalidOption, ContradictoryOptions: each in one line.
    """
    by_lower = {name.lower(): name for name in readers}
    values: dict[str, Any] = {}
    node_settings: dict[str, Any] = {}
    names: set[str] = set()
    for name, text in options.items():
        lower = name.lower()
        if lower.startswith(SETTING_PREFIX):
            setting = lower.removeprefix(SETTING_PREFIX)
            node_settings[setting] = read_setting(setting, text, settings)
        elif lower in by_lower:
            known = by_lower[lower]
            if known in names:
                raise ContradictoryOptions((known, name), "these are the same option: give it once")
            field_name, read = readers[known]
            values[field_name] = read(known, text)
            names.add(known)
        elif lower not in ignored:
            raise UnknownOption(name, [*readers, *(SETTING_PREFIX + one for one in settings)])
    return GivenOptions(values, node_settings, frozenset(names))


def check_text(name: str, text: str) -> str:
    """Return the text. Raises InvalidOption if it is not UTF-8: a shell argument may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(name, text, "text, UTF-8") from None
    return text


def check_regex(name: str, text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises InvalidOption if it is not valid, or too large."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(name, text[:80], f"a regular expression: {error}") from None


def read_integer_json(text: str) -> Any:
    """Read JSON, leaving numbers with a fraction, NaN and infinities as text, which `int` then rejects.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply.
    """
    return json.loads(text, parse_float=str, parse_constant=str)


def read_flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(name, text, "true or false")
    return text.lower() == "true"


def choice_reader(*allowed: str) -> Reader:
    """Return a reader that accepts one of these words, in any case."""

    def read(name: str, text: str) -> str:
        if text.lower() not in allowed:
            raise InvalidOption(name, text, " or ".join(allowed))
        return text.lower()

    return read


def name_reader(check: Callable[[str], object]) -> Reader:
    """Return a reader for a name of the mesh; `check` raises InvalidName if it is not valid."""

    def read(name: str, text: str) -> str:
        check_text(name, text)
        try:
            check(text)
        except InvalidName as error:
            wanted = str(error).partition("want ")[2] or f"at most {TOPIC_BYTES_MAX} bytes"
            raise InvalidOption(name, text, wanted) from None
        return text

    return read


check_existing_pattern = name_reader(check_pattern)


def iso(at_us: int) -> str:
    """Format us since 1970. Raises OverflowError if it is outside the years 1 to 9999."""
    return (EPOCH + timedelta(microseconds=at_us)).isoformat()


def read_moment(name: str, text: str) -> int:
    """Read ISO 8601, in UTC unless it has a zone, or seconds since 1970. Return us since 1970. Raises InvalidOption."""
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text) and len(text.partition(".")[0]) > 8:
            found = datetime.fromtimestamp(float(text), UTC)
        else:
            found = parse_time(text)
        at_us = since_epoch_us(found)
        iso(at_us)  # Its zone may move it to the year 0 or 10,000 in UTC, which is refused.
        return at_us
    except (ValueError, OverflowError, OSError):
        allowed = (
            "a time such as 2026-11-21T20:15:00, UTC unless it has a zone, or seconds since 1970"
        )
        raise InvalidOption(name, text, allowed) from None
