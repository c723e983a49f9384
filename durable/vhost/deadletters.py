"""Dead letters: messages that leave a queue for another address, with what they carry and where they stop.

A message goes round in a cycle only if a consumer rejected it on the way. If only time and limits moved
it, a queue that it has already been in does not get it again (RabbitMQ's rule). When it has as many deaths
as it can remember, no queue gets it at all.
"""

from __future__ import annotations

from mesh.protocol.batch import Batch

from ..definitions import QueueDefinition
from ..protocol.properties import (
    DEATHS_BYTES,
    DEATHS_COUNTED_MAX,
    Death,
    Properties,
    deaths_bytes,
    decode_properties,
)
from ..queues.journal import REJECTED, DeadRange
from .routes import readdressed

DEATHS_MAX = 32
"""Different deaths (queue and reason) that a message remembers."""
HISTORY_BYTES_MAX = DEATHS_BYTES // 2
"""Bytes of deaths above which a message forgets the keys of its earlier deaths. Consumers have room for
DEATHS_BYTES of them: a message with more could not be delivered, and would block its queue."""


def dead_letter(
    batch: Batch, dead: DeadRange, definition: QueueDefinition, now_us: int, *, brief: bool = False
) -> tuple[Batch, Properties]:
    """Return `batch` under its new address, with its history of deaths, and the new properties.

    Args:
        brief: leave out the keys of earlier deaths, which are most of the history's size; they are left
            out in any case if the history takes more than HISTORY_BYTES_MAX. The deaths themselves stay:
            without them the message might go round in a cycle.
    Raises:
        Malformed: the shared headers are not properties.
    """
    properties = decode_properties(batch.shared_headers)
    key = definition.dead_letter_routing_key
    if key is None:
        key = batch.topic
    previous = next((one for one in properties.deaths if _is_same_death(one, dead)), None)
    death = Death(
        definition.name, dead.reason,
        min(previous.count + 1, DEATHS_COUNTED_MAX) if previous else 1,
        previous.exchange if previous else properties.exchange,
        previous.keys if previous else (batch.topic, *properties.cc),
        previous.first_us if previous else now_us,
    )  # fmt: skip
    others = tuple(one for one in properties.deaths if not _is_same_death(one, dead))
    deaths = _shortened((death, *others)[:DEATHS_MAX], brief=brief)
    changed = Properties(
        exchange=definition.dead_letter_exchange or "", priority=properties.priority,
        # Its time to live is left out: it has passed or has no meaning here, and the message would die again
        # at once.
        deaths=deaths,
        cc=() if definition.dead_letter_routing_key is not None else properties.cc,
    )  # fmt: skip
    return readdressed(batch, key, changed), changed


def is_cycle(queue: str, deaths: tuple[Death, ...]) -> bool:
    """Whether a message with these deaths, the latest first, comes back to `queue` without having been
    rejected."""
    for death in deaths:
        if death.reason == REJECTED:
            return False
        if death.queue == queue:
            return True
    return len(deaths) >= DEATHS_MAX


def _shortened(deaths: tuple[Death, ...], *, brief: bool) -> tuple[Death, ...]:
    latest, *earlier = deaths
    if brief or deaths_bytes(deaths) > HISTORY_BYTES_MAX:
        deaths = (latest, *(one._replace(keys=()) for one in earlier))
        # Published by a release in which a key could have any length.
        if deaths_bytes(deaths) > HISTORY_BYTES_MAX:
            deaths = (latest._replace(keys=latest.keys[:1]), *deaths[1:])
    return deaths


def _is_same_death(death: Death, dead: DeadRange) -> bool:
    return death.queue == dead.queue and death.reason == dead.reason
