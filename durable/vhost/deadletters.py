"""Messages that leave a queue for another address: what they carry then, and where they end.

A message goes round in a cycle only when somebody rejected it on the way. If nothing but time and
limits moved it, a queue that it has been in already does not get it again (RabbitMQ's rule); nor any
other, once it has gone through as many as it remembers.
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
from ..queues.journal import REJECTED, Dead
from .routes import readdressed

DEATHS_MAX = 32
"""Ways a message has died that it remembers."""
STORY_BYTES_MAX = DEATHS_BYTES // 2
"""From there on it forgets keys. Consumers have room for DEATHS_BYTES: what is over that is delivered to
nobody, and whatever is behind it in its queue neither."""


def dead_letter(
    batch: Batch, dead: Dead, definition: QueueDefinition, now_us: int, *, brief: bool = False
) -> tuple[Batch, Properties]:
    """`batch` under its new address, with its story.

    Args:
        brief: earlier deaths without their keys, which are most of what a story takes; so they are
            in any case when it is more than STORY_BYTES_MAX. The deaths stay: without them it might
            go round in a cycle.
    Raises:
        Malformed: its shared headers are no properties.
    """
    properties = decode_properties(batch.shared_headers)
    key = definition.dead_letter_routing_key
    if key is None:
        key = batch.topic
    before = next((one for one in properties.deaths if _same(one, dead)), None)
    death = Death(
        definition.name, dead.reason,
        min(before.count + 1, DEATHS_COUNTED_MAX) if before else 1,
        before.exchange if before else properties.exchange,
        before.keys if before else (batch.topic, *properties.cc),
        before.first_us if before else now_us,
    )  # fmt: skip
    others = tuple(one for one in properties.deaths if not _same(one, dead))
    deaths = _shortened((death, *others)[:DEATHS_MAX], brief=brief)
    changed = Properties(
        exchange=definition.dead_letter_exchange or "", priority=properties.priority,
        # Its time to live is over or has no meaning here: or it would die again at once.
        deaths=deaths,
        cc=() if definition.dead_letter_routing_key is not None else properties.cc,
    )  # fmt: skip
    return readdressed(batch, key, changed), changed


def is_cycle(queue: str, deaths: tuple[Death, ...]) -> bool:
    """Whether a message with these deaths, the latest first, comes back to `queue` by itself."""
    for death in deaths:
        if death.reason == REJECTED:
            return False
        if death.queue == queue:
            return True
    return len(deaths) >= DEATHS_MAX


def _shortened(deaths: tuple[Death, ...], *, brief: bool) -> tuple[Death, ...]:
    latest, *earlier = deaths
    if brief or deaths_bytes(deaths) > STORY_BYTES_MAX:
        deaths = (latest, *(one._replace(keys=()) for one in earlier))
        if deaths_bytes(deaths) > STORY_BYTES_MAX:  # Published when a key might have any length.
            deaths = (latest._replace(keys=latest.keys[:1]), *deaths[1:])
    return deaths


def _same(death: Death, dead: Dead) -> bool:
    return death.queue == dead.queue and death.reason == dead.reason
