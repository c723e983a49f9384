"""Errors between broker and client: the class by its name, with its text and its numbers.

An error is put together without its constructor, so the text is the one of the release that raised
it, and attributes may be added on either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mesh.errors import TooLarge

from ..errors import BrokerError, DurableError

TEXT = "text"
DETAIL_MAX = 64 * 1024
"""Characters of one attribute: what was wrong with megabytes has to be told in an answer."""


def take_apart(error: DurableError | TooLarge) -> tuple[str, dict[str, Any]]:
    """Its code and its details: the text, and every attribute that is a plain value, and not a huge one."""
    if isinstance(error, BrokerError):
        return error.code, dict(error.details)
    details = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return type(error).__name__, {**details, TEXT: str(error)}


def put_together(code: str, details: Mapping[str, Any]) -> DurableError:
    """The same error; BrokerError when this release does not know its class."""
    kind = next((one for one in _tree(DurableError) if one.__name__ == code), None)
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
    """What an error says is flat; what it was given, and repeats, may be anything."""
    if isinstance(value, list | tuple):
        return all(map(_is_scalar, value))
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) <= DETAIL_MAX
    return value is None or isinstance(value, int | float | bool)


def _tree(kind: type[DurableError]) -> Iterator[type[DurableError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _tree(child)
