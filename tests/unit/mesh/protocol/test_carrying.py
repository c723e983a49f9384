"""What becomes of what a core wants done when it cannot be."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from mesh.protocol.carrying import carry_out
from mesh.protocol.instructions import Dial
from mesh.protocol.lane import Conn
from mesh.protocol.request import SENT, WAITING
from tests.machines import LANES

from .peering_bench import LARGER
from .test_core import Shell, link, make_core


class Wire:
    """A transport whose connections, but for some that have ended, take everything."""

    def __init__(self, ended: Collection[Conn] = ()) -> None:
        self.ended = ended

    def send(self, conn: Conn, frame: bytes) -> bool:
        return conn not in self.ended

    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def probe(self, endpoint: str, node: bytes) -> None: ...


@pytest.mark.parametrize(("ended", "state"), [((), SENT), *(((lane,), WAITING) for lane in LANES)])
def test_what_waits_for_a_member_whose_link_has_ended_waits_on(
    ended: Collection[int], state: object
) -> None:
    """Found: a loop that was late read both HELLOs of a dial that had been given up. What waited for that member was
    said to be lost with it, and perhaps executed, which never left."""
    core, wire = make_core(Shell()), Wire([LARGER + b"%d" % lane for lane in ended])
    pending = core.request(
        "x", b"payload", now_s=0.0, deadline_s=5.0, expires_s=5.0, wake=lambda: None
    )
    carry_out(core, wire, lambda: 0.0)
    assert pending.state == WAITING
    link(core, LARGER)
    carry_out(core, wire, lambda: 0.0)
    assert pending.state == state
