"""Tunnels of a simulated network: both ends write parts of any size and read at any speed.

opener   open -> write its parts, EOF -> read to the end
acceptor      -> write its parts, EOF -> read to the end      some abort, some stop reading
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from mesh.errors import LimitReached
from mesh.protocol.tunnel import BROKEN, CLOSED, OPENING, TunnelEnd

from .sim_node import SimNode
from .wire import Network


@dataclass(slots=True, eq=False)
class Half:
    """The task at one end. `to_send` holds the parts still to be sent, `got` those that were read."""

    node: SimNode
    end: TunnelEnd
    to_send: list[bytes]
    pause_s: float
    abort_after: int = -1
    stop_after: int = -1
    sent: list[bytes] = field(default_factory=list)
    got: list[bytes] = field(default_factory=list)
    state: str = "running"
    """running, done, broken, aborted, stopped, refused"""
    due: bool = False
    reading: bool = False


@dataclass(slots=True, eq=False)
class Pair:
    number: int
    opener: Half
    acceptor: Half | None = None
    opened_s: float = 0.0
    link_broke: bool = False


class TunnelBook:
    """Every tunnel of one network."""

    def __init__(self, network: Network, rng: Random) -> None:
        self._network, self._rng = network, rng
        self.pairs: list[Pair] = []
        self._by_link: dict[tuple[bytes, bytes, int], Pair] = {}

    def open(self, node: SimNode, cluster: str = "x", *, plain: bool = False) -> Pair | None:
        """Open a tunnel to some member. With `plain` neither end aborts or stops early."""
        candidate = node.core.choose(cluster, [])
        if candidate is None or node.core.closing:
            return None
        try:
            end = node.core.patterns.tunnels.open(
                candidate.link, cluster, "plain" if plain else "any",
                node.core.config.tunnel_window_bytes,
            )  # fmt: skip
        except LimitReached:
            return None
        half = self._half(node, end, plain=plain)
        pair = Pair(len(self.pairs), half, opened_s=self._network.now_s)
        self.pairs.append(pair)
        self._by_link[node.id, candidate.link.link_id, end.wire_id] = pair
        end.wake = self._waker(half)
        node.flush()
        return pair

    def opened(self, node: SimNode, end: TunnelEnd, endpoint: str) -> None:
        """Start the acceptor's half of an incoming tunnel."""
        pair = self._by_link[end.link.peer, end.link.link_id, end.wire_id ^ 1]
        half = self._half(node, end, plain=endpoint == "plain")
        assert pair.acceptor is None, "opened twice"
        pair.acceptor = half
        end.wake = self._waker(half)
        end.wake()

    def _half(self, node: SimNode, end: TunnelEnd, *, plain: bool) -> Half:
        rng = self._rng
        count = rng.choice([0, 1, 5, 30])
        sizes = [rng.choice([0, 1, 100, 900, 3000]) for _ in range(count)]
        parts = [rng.randbytes(min(size, 8)) + bytes(max(0, size - 8)) for size in sizes]
        half = Half(node, end, parts, pause_s=rng.choice([0.0, 0.0, 0.001, 0.03]))
        if not plain:
            half.abort_after = rng.choice([-1, -1, -1, rng.randrange(10)])
            half.stop_after = rng.choice([-1, -1, -1, rng.randrange(10)])
        return half

    def _waker(self, half: Half) -> Callable[[], None]:
        def wake() -> None:
            if not half.due:
                half.due = True
                half.node.later("tasks", lambda: self._step(half))

        return wake

    # The task

    def _step(self, half: Half) -> None:
        half.due = False
        if half.state != "running":
            return
        self._write(half)
        if half.end.state == BROKEN:
            half.state = "refused" if half.end.refusal else "broken"
        elif 0 <= half.abort_after <= len(half.got) + len(half.sent):
            half.state = "aborted"
            half.node.core.patterns.tunnels.reset(half.end, "aborted", "the other end gave up")
        elif not half.reading:
            half.reading = True
            half.node.later("tasks", lambda: self._read(half), delay_s=half.pause_s)

    def _write(self, half: Half) -> None:
        end, tunnels = half.end, half.node.core.patterns.tunnels
        if end.state == OPENING:
            return
        while half.to_send and end.state != BROKEN and not end.peer_stopped:
            part = half.to_send[0]
            if len(part) > end.peer_window_bytes:  # TooLarge: the task drops the part.
                half.to_send.pop(0)
            elif not end.may_send(len(part)):
                tunnels.report_blocked(end, len(part))
                half.node.wake_pump()
                return
            else:
                tunnels.send(end, part)
                half.sent.append(half.to_send.pop(0))
                half.node.wake_pump()
        if end.state != BROKEN and not end.sent_eof:
            tunnels.send_eof(end)

    def _read(self, half: Half) -> None:
        half.reading = False
        end, tunnels = half.end, half.node.core.patterns.tunnels
        if half.state != "running":
            return
        if end.readable:
            half.got.append(tunnels.read(end))
            half.node.wake_pump()
            assert end.statistics().unread_bytes <= end.window_bytes
        if 0 <= half.stop_after <= len(half.got) and end.state != OPENING:
            half.state = "stopped"
            tunnels.send_eof(end)
            tunnels.stop_reading(end)
        elif end.readable or end.state == BROKEN:
            self._waker(half)()
        elif end.received_eof and end.sent_eof:
            half.state = "done"
            tunnels.stop_reading(end)

    # Invariants

    def link_broke(self, one: bytes, other: bytes) -> None:
        for pair in self.pairs:
            ends = {pair.opener.node.id, pair.opener.end.link.peer}
            if {one, other} == ends:
                pair.link_broke = True

    def check_now(self) -> None:
        for pair in self.pairs:
            opener, acceptor = pair.opener, pair.acceptor
            if acceptor is None:
                continue
            for writer, reader in ((opener, acceptor), (acceptor, opener)):
                assert reader.got == writer.sent[: len(reader.got)], (
                    f"tunnel {pair.number}: not a prefix"
                )
                unread = reader.end.statistics().unread_bytes
                assert unread <= reader.end.window_bytes, f"tunnel {pair.number}: {unread} unread"

    def check_end(self, nodes: list[SimNode]) -> None:
        """Check, once all is quiet, that every end is over, and that undisturbed tunnels are complete."""
        self.check_now()
        for pair in self.pairs:
            halves = [half for half in (pair.opener, pair.acceptor) if half is not None]
            who = f"tunnel {pair.number} of {pair.opener.node.name}: " + ", ".join(
                f"{half.node.name} {half.state} {half.end.state} {half.end.reason!r}"
                for half in halves
            )
            for half in halves:
                if half.node in nodes:
                    assert half.state != "running", who
                    assert half.end.state in (CLOSED, BROKEN), who
            if pair.acceptor is None or not all(half.node in nodes for half in halves):
                continue
            opener, acceptor = halves
            disturbed = pair.link_broke or any(h.state in ("aborted", "stopped") for h in halves)
            if not disturbed:
                assert opener.state == acceptor.state == "done", who
                assert (acceptor.got, opener.to_send) == (opener.sent, []), who
                assert (opener.got, acceptor.to_send) == (acceptor.sent, []), who
