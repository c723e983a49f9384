"""Opens a tunnel: asks members one after the other, until one accepts."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .driver import Driver
from .entering import SingleUseBlock
from .errors import MeshError, NoMembers, Overloaded, PeerLost, RequestTimeout, ServiceError
from .names import short_id, split_target
from .protocol.balancer import Candidate
from .protocol.tunnel import OPENING, TunnelEnd
from .tunnel import Tunnel
from .waker import Waker

TRIES = 3
"""Members that are asked before Overloaded is raised."""
RETRY_S = 1.0
"""`retry_after_s` of that Overloaded: members that refuse a tunnel name no time."""


class Opening(SingleUseBlock[Tunnel]):
    """Made by `Node.open_tunnel`: the tunnel lives for the length of the `async with` block."""

    used_as = "async with node.open_tunnel(...) as tunnel"

    def __init__(self, driver: Driver, target: str, window_bytes: int, timeout_s: float) -> None:
        """Raises InvalidName. The other errors come on entering, see `Node.open_tunnel`."""
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
    """Return an end that a member has accepted. Raises as `Node.open_tunnel` says."""
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
            if end.peer_window_bytes:  # It was accepted, though it may have ended since.
                return end
            if end.refusal not in ("", "busy"):
                raise ServiceError(end.refusal, f"tunnel to {target!r} refused")
            if end.refusal:
                cause = Overloaded(target, len(tried), RETRY_S, *end.limit_reached)
            else:
                cause = PeerLost(target, short_id(candidate.node), maybe_executed=True)
    if scope.cancelled_caught and tried:
        raise RequestTimeout(target, timeout_s, maybe_executed=True)
    raise cause or NoMembers(cluster, timeout_s, core.rotation.present())


async def _ask(
    driver: Driver, candidate: Candidate, cluster: str, endpoint: str, window_bytes: int
) -> TunnelEnd:
    """Open a tunnel to one member; return its end once the member has accepted or refused it, or is lost."""
    tunnels, waker = driver.core.patterns.tunnels, Waker()
    end = tunnels.open(candidate.link, cluster, endpoint, window_bytes)
    end.wake = waker.wake
    driver.flush()
    try:
        while end.state == OPENING:
            await waker.wait()
    except BaseException:
        tunnels.reset(end, "aborted", "its opener stopped waiting")
        driver.flush()
        raise
    return end


async def _wait_rotation(driver: Driver, cluster: str) -> None:
    """Wait until the cluster has a member to ask. Raises NoMembers if it has none for `settle_s`."""
    core = driver.core
    settle_s = core.config.settle_s
    with driver.within(settle_s):
        await driver.wait_count(1, functools.partial(core.rotation.candidates, cluster))
        return
    raise NoMembers(cluster, settle_s, core.rotation.present())
