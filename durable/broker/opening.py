"""Opening a vhost: its log is read into a registry, then everything runs until the block ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mesh.nursery import open_nursery

from ..config import BrokerConfig
from ..log.log import open_log
from ..log.real_disk import RealDisk
from ..vhost.bodies import Bodies
from ..vhost.publishers import Publishers
from ..vhost.registry import Registry
from ..vhost.replay import Replay
from ..vhost.vhost import Vhost
from .burying import bury_the_dead
from .clock import SteadyClock
from .directory import make_vhost
from .hosted import Hosted
from .upkeep import keep_up


@asynccontextmanager
async def open_vhost(
    data: Path, name: str, config: BrokerConfig, clock: SteadyClock
) -> AsyncGenerator[Hosted]:
    """Raises StoreInUse, ForeignStore, NewerFormat, StoreFailed: it cannot be opened."""
    path = make_vhost(data, name)
    registry, publishers = Registry(), Publishers(config.publishers_max)
    replay = Replay(registry, publishers)
    async with open_log(RealDisk(str(path)), config.log, visit=replay) as log:
        replay.finish(log, clock.now_us())
        vhost = Vhost(name, registry, publishers, log, Bodies(config.recent_bytes))
        hosted = Hosted(vhost, log, clock)
        async with open_nursery() as nursery:
            nursery.start_soon(hosted.run)
            nursery.start_soon(bury_the_dead, hosted)
            nursery.start_soon(keep_up, hosted, config.idle_s)
            yield hosted
            nursery.cancel_scope.cancel()
