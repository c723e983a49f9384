"""Message properties: everything that a publisher sets besides key, headers and payload.

They are encoded as the shared headers of a batch, a msgpack map with one-letter names, so that messages
with equal properties share one copy:

    x exchange (absent: the default one)    p priority    t time to live in us    m 1: mandatory
    c CC keys    b BCC keys (removed before anything is stored)    d deaths, the latest first
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from security.unpacking import UNPACK_ERRORS

from ..definition_checks import (
    KEY,
    NAME_BYTES_MAX,
    check_flags,
    check_key,
    check_level,
    check_reference,
)
from ..definitions import PRIORITY_MAX
from ..errors import InvalidDefinition, Malformed
from .containers import unpack

CACHED_BYTES_MAX = 1024
"""Longer encoded properties are not cached: a publisher chooses their length, and all publishers share the cache."""
KEYS_MAX = 1000
DEATHS_COUNTED_MAX = 2**32
"""Upper bound of `Death.count`, which is not increased further."""
TTL_S_MAX = 86400 * 365 * 100
TTL_US_MAX = 10**6 * TTL_S_MAX
DEATHS_BYTES = 1 << 20
"""How many bytes the recorded deaths may add to a message between publishing and delivery."""


class Death(NamedTuple):
    """One queue and reason by which a message was dead-lettered, and how often that happened."""

    queue: str
    reason: str
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs.
    exchange: str
    keys: tuple[str, ...]
    """The routing key, then the CC keys."""
    first_us: int
    """When it first happened, in us since 1970."""


class Properties(NamedTuple):
    exchange: str = ""
    priority: int = 0
    ttl_us: int | None = None
    mandatory: bool = False
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    deaths: tuple[Death, ...] = ()


NO_PROPERTIES = Properties()


def merge_properties(exchange: str, mandatory: bool, properties: Properties | None) -> Properties:
    """Return `properties` with the separate `exchange` and `mandatory` arguments merged in.

    Raises InvalidDefinition if both name an exchange and these differ, or if `properties` is of another type.
    """
    if properties is None:
        return Properties(exchange, mandatory=mandatory)
    if not isinstance(properties, Properties):
        raise InvalidDefinition("message", "properties", properties, "Properties(...), or None")
    if exchange and properties.exchange and exchange != properties.exchange:
        allowed = f"{properties.exchange!r}, as in the properties, or an empty text"
        raise InvalidDefinition("message", "exchange", exchange, allowed)
    if exchange == properties.exchange and mandatory == properties.mandatory:
        return properties
    return properties._replace(
        exchange=properties.exchange or exchange, mandatory=properties.mandatory or mandatory
    )


def encode_properties(properties: Properties) -> bytes:
    """Encode as shared headers; empty if all fields have their defaults."""
    if properties == NO_PROPERTIES:
        return b""
    fields: dict[str, Any] = {}
    if properties.exchange:
        fields["x"] = properties.exchange
    if properties.priority:
        fields["p"] = properties.priority
    if properties.ttl_us is not None:
        fields["t"] = properties.ttl_us
    if properties.mandatory:
        fields["m"] = 1
    if properties.cc:
        fields["c"] = properties.cc
    if properties.bcc:
        fields["b"] = properties.bcc
    if properties.deaths:
        fields["d"] = properties.deaths
    packed: bytes = msgpack.packb(fields)
    return packed


def decode_properties(raw: bytes) -> Properties:
    """Decode shared headers; short ones are cached, as the same few come again and again. Raises Malformed."""
    if not raw:
        return NO_PROPERTIES
    return _decode_cached(raw) if len(raw) <= CACHED_BYTES_MAX else _decode(raw)


@lru_cache(maxsize=1024)
def _decode_cached(raw: bytes) -> Properties:
    return _decode(raw)


def _decode(raw: bytes) -> Properties:
    try:
        fields = unpack(raw)
        return Properties(
            _text(fields.get("x", "")), _number(fields.get("p", 0), PRIORITY_MAX),
            _number(fields["t"], TTL_US_MAX) if "t" in fields else None, bool(fields.get("m", 0)),
            _keys(fields.get("c", ())), _keys(fields.get("b", ())),
            tuple(_death(*one) for one in fields.get("d", ())),
        )  # fmt: skip
    except (AttributeError, *UNPACK_ERRORS):
        raise Malformed("invalid properties") from None


def deaths_bytes(deaths: tuple[Death, ...]) -> int:
    """Return the size of the encoded deaths in shared headers."""
    return len(msgpack.packb(deaths))


def check_properties(properties: Properties) -> None:
    """Raise InvalidDefinition, which names the field, for a value that may not be published.

    Only for the publishing side: older logs may hold longer keys.
    """
    check_reference("message", "exchange", properties.exchange)
    check_level("message", "priority", properties.priority, PRIORITY_MAX)
    if properties.ttl_us is not None:
        check_level("message", "ttl_us", properties.ttl_us, TTL_US_MAX)
    check_flags("message", mandatory=properties.mandatory)
    for field, keys in (("cc", properties.cc), ("bcc", properties.bcc)):
        if not isinstance(keys, tuple) or len(keys) > KEYS_MAX:
            raise InvalidDefinition("message", field, keys, f"at most {KEYS_MAX} keys, each a text")
        for key in keys:
            check_key("message", field, key)


def check_published(key: str, properties: Properties) -> None:
    """Raise InvalidDefinition if the key or a name that a publisher sent is too long; all of them are text already.

    Not part of decoding, which also reads logs: earlier releases accepted keys of any length.
    """
    _check_length("key", key)
    if properties is NO_PROPERTIES:
        return
    _check_length("exchange", properties.exchange)
    for field, keys in (("cc", properties.cc), ("bcc", properties.bcc)):
        for one in keys:
            _check_length(field, one)


def _check_length(field: str, name: str) -> None:
    # A character takes at most four bytes, so most names need not be encoded.
    if 4 * len(name) > NAME_BYTES_MAX and len(name.encode()) > NAME_BYTES_MAX:
        # Quote only the start of the name: the error is kept in memory until the publisher is told.
        raise InvalidDefinition("message", field, name[:NAME_BYTES_MAX], KEY)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise TypeError("number")
    return value


def _keys(value: Any, most: int = KEYS_MAX) -> tuple[str, ...]:
    if len(value) > most:
        raise ValueError("keys")
    return tuple(map(_text, value))


def _death(queue: Any, reason: Any, count: Any, exchange: Any, keys: Any, first_us: Any) -> Death:
    return Death(
        _text(queue), _text(reason), _number(count, DEATHS_COUNTED_MAX), _text(exchange),
        _keys(keys, KEYS_MAX + 1), _number(first_us, 2**63),
    )  # fmt: skip
