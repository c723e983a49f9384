"""What a member is told of the time that a request has left, whatever made it leave."""

from __future__ import annotations

from mesh.protocol.core import Core
from mesh.protocol.frame import DATA, Frame, Kind
from mesh.protocol.outbox import REQUESTS
from mesh.protocol.request import PREFIX

from .peering_bench import LARGER, SMALLER, announce
from .test_core import Shell, hear, link, make_core


def left_ms(core: Core) -> int:
    """What the one request says that leaves."""
    frames = [Frame(item[1]) for item in core.out if isinstance(item, tuple)]
    (head,) = [
        frame.data[start:end]
        for frame in frames for kind, _, _, start, end in frame.records if kind == Kind.REQUEST
    ]  # fmt: skip
    return int(PREFIX.unpack_from(head)[0])


def test_what_waited_for_room_is_told_the_time_it_has_left_when_it_leaves() -> None:
    """Found: as of the last event, so that a member began what nobody would wait for to its end."""
    core = make_core(Shell())
    link(core, SMALLER)
    outbox = core.peering.links[SMALLER].outbox
    outbox.push(REQUESTS, Kind.REPLY, 1, bytes(core.config.outbox_bytes))
    core.request("x/get", b"", now_s=1.0, deadline_s=3.0, expires_s=3.0, wake=bool)
    assert core.patterns.requests.waiting
    outbox.take(1 << 30)
    core.out.clear()
    core.flush(2.0)
    assert left_ms(core) == 1000


def test_what_goes_elsewhere_because_a_goodbye_was_found_is_told_the_time_it_has_left() -> None:
    """Found: as of the last event, too, which is long ago where the loop was late."""
    core = make_core(Shell())
    link(core, SMALLER)
    hear(core, 1, 0.0)
    core.request("x/get", b"", now_s=0.0, deadline_s=3.0, expires_s=3.0, wake=bool)
    core.lost(SMALLER + b"%d" % DATA, 0.0)
    link(core, LARGER)
    core.found("", announce(SMALLER, 2, left=True), 2.5)
    core.flush(2.5)
    assert left_ms(core) == 500
