"""Sends the messages of a control tunnel (calls at one end, answers at the other), whatever their length."""

from __future__ import annotations

import trio

from mesh.tunnel import Tunnel

from .protocol.pieces import in_pieces, is_long


class ControlSender:
    """The sending side of one end of a control tunnel."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel, self._lock = tunnel, trio.Lock()

    async def send(self, number: int, whole: bytes) -> None:
        """Send call `number`, or its answer: as one part, or as pieces that are not interleaved with pieces
        of others.

        When cancelled, nothing was sent, or pieces without the last one. Raises TooLarge or TunnelBroken
        as `Tunnel.send` does.
        """
        limit = self._tunnel.part_bytes_max
        if not is_long(whole, limit):
            await self._tunnel.send(whole)
            return
        async with self._lock:
            for piece in in_pieces(number, whole, limit):
                await self._tunnel.send(piece)
