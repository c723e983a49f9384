"""Checks messages, and encodes their properties, before any of them is taken.

What the broker would refuse is refused here, with an error that names the argument: of messages that were taken, it
comes later, or ends the publisher.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.errors import TooLarge

from ..definition_checks import check_key
from ..errors import InvalidDefinition, Malformed
from ..protocol.properties import (
    Properties,
    check_properties,
    decode_properties,
    encode_properties,
)

HEADERS_BYTES_MAX = 64 * 1024


def checked_payloads(payloads: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the payloads as a tuple: a caller may change its list while the messages wait for room.

    Raises TypeError if it is not a sequence of bytes; neither a set nor an iterator is one.
    """
    if not isinstance(payloads, Sequence) or isinstance(payloads, bytes | str):
        raise TypeError(f"payloads: want a list of bytes, got {type(payloads).__name__}")
    given = tuple(payloads)
    for kind in set(map(type, given)):
        if not issubclass(kind, bytes):
            raise TypeError(f"payload: want bytes, got {kind.__name__}")
    return given


def check_sizes(payloads: Sequence[bytes], around_bytes: int, limit_bytes: int) -> None:
    """Raise TooLarge if a message is larger than the broker takes.

    Args:
        around_bytes: properties and headers of each, or of the one that has the longest.
    """
    size = max(map(len, payloads), default=0) + around_bytes
    if size > limit_bytes:
        source = "the lesser of the broker's --window-size and payload_bytes_max of both ends"
        raise TooLarge("message", size, limit_bytes, source)


class PropertiesEncoder:
    """Encodes the properties of one publisher's messages; those that occur again are checked and encoded once."""

    def __init__(self) -> None:
        self._encoded: dict[Properties, bytes] = {}
        self._checked_key = ""
        """The last key that was checked; the empty one is valid."""

    def encode(self, exchange: str, key: str, properties: Properties | None) -> bytes:
        """Return the encoded properties. Raises InvalidDefinition for what the broker would refuse, or for which
        it would end this publisher."""
        if key != self._checked_key:
            check_key("message", "key", key)
            self._checked_key = key
        wanted = Properties(exchange) if properties is None else properties
        try:
            encoded = self._encoded.get(wanted)
        except TypeError:  # Not hashable, as with a list in it: check_properties names the field.
            encoded = None
        if encoded is None:
            check_properties(wanted)
            if len(self._encoded) > 1000:
                self._encoded.clear()
            try:
                encoded = encode_properties(wanted)
                decode_properties(encoded)
                self._encoded[wanted] = encoded
            except (Malformed, TypeError, ValueError, OverflowError):
                allowed = "deaths as taken from a delivery"
                raise InvalidDefinition("message", "deaths", wanted.deaths, allowed) from None
        return encoded
