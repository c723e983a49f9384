"""What of its settlements a consumer that fails leaves behind."""

from __future__ import annotations

from typing import cast

import trio
from trio.testing import wait_all_tasks_blocked

from durable.client.deliveries import _Session
from durable.protocol.parts import ACK, LEAVING, REQUEUE, Settlement, encode_settlements
from mesh.tunnel import Tunnel


class Narrow:
    """A tunnel in which there is room again when whoever waits for it has not had its turn yet."""

    broken = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, part: bytes) -> None:
        await trio.sleep_forever()

    def send_nowait(self, part: bytes) -> None:
        self.sent.append(part)


async def test_what_waits_for_room_is_settled_before_the_rest_comes_back() -> None:
    """Found by reading: what had been acked in a part that had not left yet came back, as a return."""
    tunnel, lost = Narrow(), list[int]()
    session = _Session(cast("Tunnel", tunnel), lost.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.run)
        session.settle(ACK, 0, 2)
        await wait_all_tasks_blocked()
        session.settle(ACK, 3, 4)
        session.leave(6)
        nursery.cancel_scope.cancel()
    settled = [Settlement(ACK, 0, 2), Settlement(ACK, 3, 4), Settlement(REQUEUE, 0, 6)]
    assert tunnel.sent == [LEAVING, encode_settlements(settled)]
