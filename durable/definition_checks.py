"""Valid values of the fields of definitions. Each check raises InvalidDefinition, or returns.

name        1 to 255 bytes of UTF-8, no control characters; the prefixes `mesh.` and `amq.` are reserved
reference   a name, or the empty name of the default exchange
key         0 to 255 bytes of UTF-8: messages and bindings are routed by it
argument    None, or a bool, int, float or str that JSON and msgpack hold without change
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from mesh.errors import InvalidName
from mesh.names import check_cluster, check_pattern

from .errors import InvalidDefinition
from .expressions import NESTING_MAX, compiled

NAME_BYTES_MAX = 255
RESERVED = ("amq.", "mesh.")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
COUNT_MAX = 2**63 - 1
SECONDS_MAX = 10_000_000_000
"""Three centuries. Added to the present, in microseconds, it still fits a u64."""
INTEGERS = range(-(2**63), 2**64)
"""The integers that msgpack can hold."""

NAME = f"1 to {NAME_BYTES_MAX} bytes of UTF-8 without control characters"
NONE = "None (null in JSON and in a shell)"
EXPRESSION_MAX = 65_536
"""Characters: about two thousand names, compiled in 0.05 s. Expressions already in a log may be longer."""
EXPRESSION = (
    f"a regular expression of at most {EXPRESSION_MAX} characters, with parentheses nested at most "
    f"{NESTING_MAX} deep"
)
KEY = f"text of at most {NAME_BYTES_MAX} bytes of UTF-8"


def check_key(kind: str, field: str, value: Any) -> None:
    if not _fits(value):
        raise InvalidDefinition(kind, field, value, KEY)


def check_name(kind: str, field: str, value: Any) -> None:
    if not _fits(value) or not value or CONTROL.search(value):
        raise InvalidDefinition(kind, field, value, NAME)


def check_own_name(kind: str, value: Any, built_in: Collection[str] = ()) -> None:
    """Check the name of something that users declare: like `check_name`, and not reserved."""
    check_name(kind, "name", value)
    if value.startswith(RESERVED) and value not in built_in:
        begin = " or ".join(RESERVED)
        raise InvalidDefinition(kind, "name", value, f"a name that does not begin with {begin}")


def check_reference(kind: str, field: str, value: Any) -> None:
    """Check the name of an exchange; "" is the default exchange."""
    if value != "":
        check_name(kind, field, value)


def check_flags(kind: str, **flags: Any) -> None:
    for field, value in flags.items():
        if type(value) is not bool:
            raise InvalidDefinition(kind, field, value, "true or false")


def check_choice(kind: str, field: str, value: Any, choices: Collection[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise InvalidDefinition(kind, field, value, f"one of {', '.join(choices)}")


def check_counts(kind: str, **counts: Any) -> None:
    """Each value is None, or an integer over 0."""
    for field, value in counts.items():
        if value is not None and not (type(value) is int and 0 < value <= COUNT_MAX):
            raise InvalidDefinition(
                kind, field, value, f"an integer of 1 to {COUNT_MAX}, or {NONE}"
            )


def check_seconds(kind: str, **times: Any) -> None:
    """Each value is None, or a number over 0. NaN is refused, because no comparison with it is true."""
    for field, value in times.items():
        if value is not None and not (type(value) in (int, float) and 0 < value <= SECONDS_MAX):
            allowed = f"a number of seconds over 0, at most {SECONDS_MAX}, or {NONE}"
            raise InvalidDefinition(kind, field, value, allowed)


def checked_wait_s(kind: str, field: str, value: Any) -> float:
    """Return how long to wait, in seconds, as a number that trio accepts; 0 and infinity are allowed."""
    if not isinstance(value, int | float) or not value >= 0:  # `not >=` also refuses NaN.
        raise InvalidDefinition(kind, field, value, "a number of seconds, 0 or more")
    # Python's integers may be larger than any time that trio accepts.
    return min(value, SECONDS_MAX)


def check_level(kind: str, field: str, value: Any, top: int) -> None:
    if type(value) is not int or not 0 <= value <= top:
        raise InvalidDefinition(kind, field, value, f"an integer of 0 to {top}")


def check_cluster_name(kind: str, field: str, value: Any) -> None:
    try:
        check_cluster(value)
    except InvalidName as error:
        raise InvalidDefinition(kind, field, value, f"the name of a cluster ({error})") from error


def check_patterns(kind: str, field: str, value: Any) -> None:
    """Each is a valid mesh pattern, and none is given twice."""
    if not isinstance(value, tuple):
        raise InvalidDefinition(kind, field, value, "a list of mesh patterns")
    seen: set[str] = set()
    for pattern in value:
        try:
            check_pattern(pattern)
        except InvalidName as error:
            raise InvalidDefinition(kind, field, pattern, f"mesh patterns ({error})") from error
        if pattern in seen:
            raise InvalidDefinition(kind, field, pattern, "each pattern once")
        seen.add(pattern)


def check_regex(kind: str, field: str, value: Any) -> None:
    try:
        if isinstance(value, str) and len(value) > EXPRESSION_MAX:
            raise ValueError(f"it has {len(value)} characters")
        compiled(value)
        value.encode()
    except ValueError as error:  # UnicodeEncodeError, too.
        raise InvalidDefinition(kind, field, value, f"{EXPRESSION} ({error})") from error


def check_arguments(kind: str, field: str, value: Any, matches: Collection[str]) -> None:
    """The value is a tuple of pairs, sorted by name, each name once; `x-match`, if there, is one of
    `matches`."""
    if not isinstance(value, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in value
    ):
        raise InvalidDefinition(kind, field, value, "names and their values")
    for name, one in value:
        check_name(kind, field, name)
        if not _is_plain(one):
            allowed = "None, true, false, a 64-bit integer, a finite number or text as value"
            raise InvalidDefinition(kind, f"{field}[{name!r}]", one, allowed)
        if name == "x-match":
            check_choice(kind, f"{field}[{name!r}]", one, matches)
    names = [name for name, _ in value]
    if names != sorted(set(names)):
        raise InvalidDefinition(kind, field, names, "sorted names, each once")


def _fits(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return value.encode() is not None
        except UnicodeEncodeError:
            return False
    if type(value) is int:
        return value in INTEGERS
    if type(value) is float:
        return value - value == 0  # False for infinity and NaN.
    return value is None or type(value) is bool
