"""How every mesh role joins: by the public API, with settings as made by bench/network.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

import mesh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

OPTIONAL = ("advertise", "queue_requests", "peers_max")
"""Settings of MeshConfig for which some measurement needs another value than the default."""

SILENCE_S_MAX = 5.0

KNOCK = b"knock"
"""Published until every subscription has received one: the publisher then knows its interest."""


def join(
    settings: Mapping[str, Any], who: str | mesh.Service | None = None
) -> AbstractAsyncContextManager[mesh.Node]:
    """Join with these settings; `who` is a service, or None for a plain member."""
    more = {name: settings[name] for name in OPTIONAL if name in settings}
    return mesh.join(
        who or settings["cluster"],
        listen=settings["listen"],
        seeds=settings["seeds"],
        zeroconf=settings.get("zeroconf", False),
        network_secret=settings["network_secret"],
        **more,
    )


def topic_names(count: int) -> list[str]:
    return [f"bench.{index}" for index in range(count)]


async def until_silent(
    received: Callable[[], int], scope: trio.CancelScope, silence_s: float = SILENCE_S_MAX
) -> None:
    """Cancel `scope` when `received()` has not changed for `silence_s`: messages were lost."""
    last = -1
    while (now := received()) != last:
        last = now
        await trio.sleep(silence_s)
    scope.cancel()


async def drain(messages: AsyncIterator[mesh.Message], quiet_s: float = 0.2) -> None:
    """Discard messages until none has come for `quiet_s`."""
    while True:
        with trio.move_on_after(quiet_s) as quiet:
            await anext(messages)
        if quiet.cancelled_caught:
            return
