"""Opening a tunnel: members are asked one after the other, until one accepts."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .driver import Driver
from .entering import Life
from .errors import MeshError, NoMembers, Overloaded, PeerLost, RequestTimeout, ServiceError
from .names import short, split_target
from .protocol.balancer import Candidate
from .protocol.tunnel import OPENING, TunnelEnd
from .tunnel import Tunnel
from .waker import Waker

TRIES = 3
"""Members that are asked before it is Overloaded."""
RETRY_S = 1.0
"""What Overloaded says then: a refusal of a tunnel tells no time."""


class Opening(Life[Tunnel]):
    """Made by `Node.open_tunnel`: the tunnel's life is the `async with` block."""

    used_as = "async with node.open_tunnel(...) as tunnel"

    def __init__(self, driver: Driver, target: str, window_bytes: int, timeout_s: float) -> None:
        """Raises InvalidName; for the rest see `Node.open_tunnel`."""
        cluster, endpoint = split_target(target)
        super().__init__(_opened(driver, target, cluster, endpoint, window_bytes, timeout_s))


@asynccontextmanager
async def _opened(
    driver: Driver, target: str, cluster: str, endpoint: str, window_bytes: int, timeout_s: float
) -> AsyncIterator[Tunnel]:
    end = await _find(driver, target, cluster, endpoint, window_bytes, timeout_s)
    async with Tunnel(driver, end) as tunnel:
        yield tunnel


async def _find(
    driver: Driver, target: str, cluster: str, endpoint: str, window_bytes: int, timeout_s: float
) -> TunnelEnd:
    """An end that a member has accepted."""
    core, tried = driver.core, list[bytes]()
    cause: MeshError | None = None
    with driver.within(timeout_s) as scope:
        while len(tried) < TRIES:
            core.check_open()
            candidate = core.choose(cluster, tried)
            if candidate is None and tried:
                break
            if candidate is None:
                await _wait_rotation(driver, cluster)
                continue
            tried.append(candidate.node)
            end = await _ask(driver, candidate, cluster, endpoint, window_bytes)
            if end.peer_window_bytes:  # It may have been given up since.
                return end
            if end.refusal not in ("", "busy"):
                raise ServiceError(end.refusal, f"tunnel to {target!r} refused")
            if end.refusal:
                cause = Overloaded(target, len(tried), RETRY_S, *end.full_of)
            else:
                cause = PeerLost(target, short(candidate.node), maybe_executed=True)
    if scope.cancelled_caught and tried:
        raise RequestTimeout(target, timeout_s, maybe_executed=True)
    raise cause or NoMembers(cluster, timeout_s, core.rotation.present())


async def _ask(
    driver: Driver, candidate: Candidate, cluster: str, endpoint: str, window_bytes: int
) -> TunnelEnd:
    """One that the member has accepted or refused, or that was lost with it."""
    tunnels, waker = driver.core.patterns.tunnels, Waker()
    end = tunnels.open(candidate.link, cluster, endpoint, window_bytes)
    end.wake = waker.wake
    driver.settle()
    try:
        while end.state == OPENING:
            await waker.wait()
    except BaseException:
        tunnels.reset(end, "aborted", "nobody waits for it any more")
        driver.settle()
        raise
    return end


async def _wait_rotation(driver: Driver, cluster: str) -> None:
    """Until the cluster has a member to ask. Raises NoMembers: it has none for `settle_s`."""
    core = driver.core
    settle_s = core.config.settle_s
    with driver.within(settle_s):
        await driver.until(1, functools.partial(core.rotation.of_cluster, cluster))
        return
    raise NoMembers(cluster, settle_s, core.rotation.present())
