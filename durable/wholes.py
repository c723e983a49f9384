"""What is said in a control tunnel: calls at one end, answers at the other, however long."""

from __future__ import annotations

import trio

from mesh.tunnel import Tunnel

from .protocol.pieces import in_pieces, is_long


class Wholes:
    """Sent from one end of a tunnel."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel, self._turn = tunnel, trio.Lock()

    async def send(self, number: int, whole: bytes) -> None:
        """Call `number`, or its answer: in one part, or in pieces with none of another one between.

        Cancelled: nothing was sent, or pieces to which no end comes. Raises TooLarge, TunnelBroken:
        as the tunnel does.
        """
        limit = self._tunnel.part_bytes_max
        if not is_long(whole, limit):
            await self._tunnel.send(whole)
            return
        async with self._turn:
            for piece in in_pieces(number, whole, limit):
                await self._tunnel.send(piece)
