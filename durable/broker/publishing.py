"""A publisher's session: parts of batches in, cumulative confirms out."""

from __future__ import annotations

from collections.abc import Callable

from mesh.nursery import open_nursery
from mesh.tunnel import Tunnel
from mesh.waker import Waker

from ..errors import PublisherFenced, StoreBusy
from ..protocol.calls import Answer, Hello, encode_answer
from ..protocol.parts import Refusal, decode_batches, encode_confirm
from ..tunnels import ends_with_tunnel
from .hosted import Hosted
from .peer import Peer, field


async def serve_publisher(tunnel: Tunnel, hello: Hello, hosted: Hosted, peer: Peer) -> None:
    """Until the client ends it.

    Raises:
        DurableError: why it was refused, or ended.
    """
    publisher = hosted.vhost.publishers.open(
        field(hello, "publisher", bytes), field(hello, "epoch", int), field(hello, "oldest", int)
    )
    session = _Session(tunnel, hosted, peer)
    hosted.attach_publisher(publisher, session.confirm)
    try:
        await tunnel.send(encode_answer(Answer(0, {"next": publisher.next})))
        async with open_nursery() as nursery:
            nursery.start_soon(session.send_confirms, lambda: publisher.confirmed)
            async for part in tunnel:
                if publisher.epoch != field(hello, "epoch", int):
                    raise PublisherFenced(
                        publisher.id.hex(), field(hello, "epoch", int), publisher.epoch
                    )
                batches = decode_batches(part)
                while True:
                    now_us = hosted.clock.now_us()
                    try:
                        refusals = hosted.vhost.publish(
                            publisher, batches, peer.may_publish, now_us
                        )
                        break
                    except StoreBusy:
                        await hosted.log.wait_room()
                session.refused(refusals)
                if not publisher.waiting:
                    session.confirm()
                hosted.wake()
            nursery.cancel_scope.cancel()
    finally:
        hosted.detach_publisher(publisher, session.confirm)


class _Session:
    def __init__(self, tunnel: Tunnel, hosted: Hosted, peer: Peer) -> None:
        self._tunnel = tunnel
        self._waker = Waker()
        self._refusals: list[Refusal] = []
        self.confirm = self._waker.wake

    def refused(self, refusals: list[Refusal]) -> None:
        self._refusals += refusals

    @ends_with_tunnel
    async def send_confirms(self, confirmed: Callable[[], int]) -> None:
        sent = -1
        while True:
            if confirmed() > sent or self._refusals:
                sent, refusals = confirmed(), self._refusals
                self._refusals = []
                await self._tunnel.send(encode_confirm(sent, refusals))
            else:
                await self._waker.wait()
