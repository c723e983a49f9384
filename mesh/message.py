"""A message as a subscriber sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, repeat
from typing import Any, NamedTuple

import msgpack

from security.unpacking import UNPACK_ERRORS

from .errors import TooLarge
from .protocol.inbox import Delivery


class Message(NamedTuple):
    """One message of a topic."""

    topic: str
    payload: bytes
    sender: bytes
    """Node id of the publisher."""
    headers: Mapping[str, Any]
    sequence: int
    """Number of this message among those of this sender on this topic, from 0."""
    lost: int
    """Number of messages of this sender and topic that are missing just before this one."""


NO_HEADERS: Mapping[str, Any] = {}
READ_BYTES_MAX = 128 * 1024
"""Longest headers that are decoded: twice what a node of ours sends. Decoded they may take 70 times their length, so a
message of 16 MiB that is all headers would take a gigabyte."""
_make = partial(tuple.__new__, Message)


def messages(delivery: Delivery) -> Iterator[Message]:
    """Iterate over the messages of a delivery. They are made in C, which takes 0.1 us per message instead of 0.3."""
    headers: Iterator[Mapping[str, Any]] = repeat(NO_HEADERS)
    column = delivery.headers
    if column is not None:
        headers = map(decode_headers, column)
    return map(
        _make,
        zip(
            repeat(delivery.topic), delivery.payloads, repeat(delivery.sender), headers,
            count(delivery.sequence), chain((delivery.lost,), repeat(0)),
        ),
    )  # fmt: skip


def encode_headers(headers: Mapping[str, Any], bytes_max: int, source: str = "") -> bytes:
    """Return headers packed as they are sent.

    Args:
        headers: names to values that msgpack can pack: text, bytes, numbers, True, None, lists, dicts.
        source: what sets `bytes_max`, for the error text.
    Raises:
        TypeError: a name is not text, or a value has another type; the error names it.
        TooLarge: the packed headers are longer than `bytes_max`.
    """
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers: want a mapping, got {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str):
            raise TypeError(f"headers: want text as a name, got {name!r}")
        try:
            msgpack.unpackb(msgpack.packb([name, value]))  # The subscriber must be able to.
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"headers: {name!r}: {error}") from None
    packed: bytes = msgpack.packb(headers)
    if len(packed) > bytes_max:
        raise TooLarge("headers", len(packed), bytes_max, source)
    return packed


def check_packed(headers: Sequence[bytes], count: int, bytes_max: int) -> tuple[bytes, ...]:
    """Check headers that the caller has packed, one for each of `count` payloads; return a copy of the sequence.

    Raises:
        TypeError: one is not bytes, so that no batch can be made of it.
        ValueError: there are more, or fewer.
        TooLarge: one is longer than `bytes_max`.
    """
    packed = tuple(headers)
    if len(packed) != count:
        raise ValueError(f"{len(packed)} headers for {count} payloads")
    for kind in {*map(type, packed)} - {bytes}:
        raise TypeError(f"headers: want bytes packed by encode_headers, got {kind.__name__}")
    if (size := max(map(len, packed), default=0)) > bytes_max:
        raise TooLarge("headers", size, bytes_max, "headers_bytes_max")
    return packed


def decode_headers(raw: bytes) -> Mapping[str, Any]:
    """Unpack headers that `encode_headers` has packed; empty if the other end sent something else, or too many bytes."""
    if not raw or len(raw) > READ_BYTES_MAX:
        return NO_HEADERS
    try:
        headers = msgpack.unpackb(raw)  # msgpack limits lengths inside to that of `raw`.
    except UNPACK_ERRORS:
        return NO_HEADERS
    return headers if isinstance(headers, dict) else NO_HEADERS
