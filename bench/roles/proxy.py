"""A resetting proxy in front of each target; all are reset together."""

from __future__ import annotations

import trio

from bench.proxy import Proxy
from bench.roles.stage import Stage, play_async

TRAFFIC_S_MAX = 15.0


async def run(stage: Stage) -> None:
    """Settings: `routes`, a list of [listen port or 0, target port]. An order resets all proxies under load."""
    async with trio.open_nursery() as nursery:
        proxies, ports = [], []
        for listen_port, target_port in stage.settings["routes"]:
            proxy = Proxy(("127.0.0.1", target_port))
            proxies.append(proxy)
            ports.append(await nursery.start(proxy.serve, ("127.0.0.1", listen_port)))
        stage.ready(ports=ports)
        async for order in stage.orders_async():
            if await wait_traffic(proxies, order["traffic_bytes"]):
                stage.done(connections=sum(proxy.reset() for proxy in proxies))
            else:
                stage.failed(f"no traffic within {TRAFFIC_S_MAX:.0f} s of the last reset")
        nursery.cancel_scope.cancel()


async def wait_traffic(proxies: list[Proxy], traffic_bytes: int) -> bool:
    """Wait until that many bytes have passed since the last reset; return False after TRAFFIC_S_MAX."""
    with trio.move_on_after(TRAFFIC_S_MAX):
        # Polled, as the data path only counts.
        while sum(proxy.forwarded_bytes for proxy in proxies) < traffic_bytes:  # noqa: ASYNC110
            await trio.sleep(0.002)
        return True
    return False


if __name__ == "__main__":
    play_async(run)
