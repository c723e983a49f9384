"""Errors sent between broker and client: the name of the class, the text, and the plain attributes.

An error is rebuilt without calling its constructor, so its text is that of the release that raised it, and
either side may add attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mesh.errors import TooLarge

from ..errors import BrokerError, DurableError

TEXT = "text"
DETAIL_MAX = 64 * 1024
"""Longest attribute, in characters or bytes: a wrong value may be megabytes long and has to fit into an answer."""


def describe_error(error: DurableError | TooLarge) -> tuple[str, dict[str, Any]]:
    """Return the error's code and details: its text, and each attribute that is a plain value within DETAIL_MAX."""
    if isinstance(error, BrokerError):
        return error.code, dict(error.details)
    details = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return type(error).__name__, {**details, TEXT: str(error)}


def rebuild_error(code: str, details: Mapping[str, Any]) -> DurableError:
    """Rebuild the error; a BrokerError if this release does not know its class."""
    kind = next((one for one in _subclasses(DurableError) if one.__name__ == code), None)
    if kind is None:
        return BrokerError(code, dict(details))
    text = str(details.get(TEXT, code))
    error = kind.__new__(kind, text)
    error.args = (text,)
    vars(error).update({name: value for name, value in details.items() if _is_attribute(name)})
    return error


def _is_attribute(name: object) -> bool:
    return isinstance(name, str) and name != TEXT and not name.startswith("_")


def _is_plain(value: Any) -> bool:
    """Details of an error are scalars, or lists of these; the rejected value that it quotes may be anything."""
    if isinstance(value, list | tuple):
        return all(map(_is_scalar, value))
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) <= DETAIL_MAX
    return value is None or isinstance(value, int | float | bool)


def _subclasses(kind: type[DurableError]) -> Iterator[type[DurableError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)
