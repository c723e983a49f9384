"""Which queues and streams a batch goes to: decided for the whole batch if possible, for each message where
headers decide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from mesh.protocol.batch import Batch
from security.unpacking import UNPACK_ERRORS

from ..errors import Malformed
from ..protocol.containers import unpack
from ..protocol.properties import Properties, encode_properties
from ..routing.router import Router
from .groups import part_of


class Routed(NamedTuple):
    """Consecutive messages that have the same destinations."""

    batch: Batch
    names: tuple[str, ...]


def routed(router: Router, batch: Batch, properties: Properties) -> Sequence[Routed]:
    """Split a batch into as few pieces as have one set of destinations each; BCC is removed.

    Raises:
        UnknownExchange, Malformed: nothing of it can be routed.
    """
    exchange = properties.exchange
    keys = (batch.topic, *properties.cc, *properties.bcc)
    if properties.bcc:
        batch = readdressed(batch, batch.topic, properties._replace(bcc=()))
    columns = batch.message_headers() if router.needs_headers(exchange) else None
    if columns is None:
        return (Routed(batch, router.route(exchange, keys)),)
    names = [router.route(exchange, keys, _headers(raw)) for raw in columns]
    at, found = batch.base_sequence, list[Routed]()
    for destinations, alike in groupby(names):
        end = at + len(list(alike))
        found.append(Routed(cut(batch, at, end), destinations))
        at = end
    return found


def cut(batch: Batch, first: int, end: int) -> Batch:
    """Return the messages with sequences [`first`, `end`) as a batch of their own."""
    return part_of(batch, batch.base_sequence, first, end)


def readdressed(batch: Batch, key: str, properties: Properties) -> Batch:
    """Return the same messages with another key and other properties."""
    return batch.readdressed(key, encode_properties(properties))


def _headers(raw: bytes) -> dict[str, Any]:
    try:
        headers = unpack(raw) if raw else {}
    except UNPACK_ERRORS:
        raise Malformed("headers that are not msgpack") from None
    if not isinstance(headers, dict):
        raise Malformed("headers that are not a map")
    return headers
