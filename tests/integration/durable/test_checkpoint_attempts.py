"""How often a checkpoint is tried, and what is said of it. In virtual time."""

from __future__ import annotations

import logging

import pytest
import trio

from durable.broker.checkpoints import LOOKS_MAX, Checkpointer
from durable.broker.hosted import Hosted
from durable.config import BrokerConfig
from durable.errors import StoreFull
from durable.log.faulty_disk import FaultyDisk
from durable.log.memory_disk import Volume
from durable.vhost.checkpointing import Checkpointing
from tests.power_cuts import run

LOOK_S = 0.5
REFUSED = (1, 3, 7, 15, 23)
"""In looks: each pause is twice the one before, at most LOOKS_MAX."""
WRITTEN = (31, 32, 33)
REFUSED_AGAIN = (34, 36)


class Attempts(Checkpointer):
    """Notes when one is tried, and finds no room at those times that were said."""

    def __init__(self, hosted: Hosted) -> None:
        checkpointing = Checkpointing(hosted.vhost.registry)
        super().__init__(hosted, FaultyDisk(Volume()), checkpointing, BrokerConfig())
        self._began_s = trio.current_time()
        self.at: list[float] = []

    @property
    def due(self) -> bool:
        return True

    async def write(self) -> None:
        self.at.append((trio.current_time() - self._began_s) / LOOK_S)
        if round(self.at[-1]) in REFUSED + REFUSED_AGAIN:
            raise StoreFull(100, 100, 0)


def test_pauses_grow_while_there_is_no_room_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each attempt encodes all there is to say, and nobody declares anything meanwhile."""
    caplog.set_level(logging.WARNING, logger="durable")

    async def life(hosted: Hosted) -> None:
        attempts = Attempts(hosted)
        with trio.move_on_after((REFUSED_AGAIN[-1] + 0.5) * LOOK_S):
            await attempts.run(LOOK_S)
        assert attempts.at == pytest.approx(REFUSED + WRITTEN + REFUSED_AGAIN)

    run(Volume(), life)
    assert REFUSED[-1] - REFUSED[-2] == LOOKS_MAX
    said = [one for one in caplog.messages if one.startswith("no checkpoint of /")]
    assert len(said) == 2, "once each time it begins"
