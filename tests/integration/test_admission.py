"""Whose key it is that a client shows: asked of the keyring, and once more of what has come by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from mesh.admission import Admission
from mesh.dials import Dialled
from mesh.protocol.frame import CONTROL
from mesh.protocol.lane import Conn
from mesh.zmq_transport import FRAMES_PER_TURN
from security.keyring import NetworkKeyring
from tests.transports import InMemory

SECRET = b"tests of the mesh, 32 bytes long"
ALLOWED, REFUSED = (b"200", b"shop"), (b"400", b"")
SEED, CONN, CONTROLS = b"seed", 7, "inproc://control"


class Asked(InMemory):
    """Whose seed's answer, once it is read, tells of cluster shop; and what became of libzmq's questions."""

    def __init__(self) -> None:
        self.keyring = NetworkKeyring([SECRET])
        super().__init__(self.keyring)
        transport = self.transport
        transport._inbound = self.router("inproc://inbound")
        socket = self.router(CONTROLS)
        transport._outbound = {CONTROL: socket}
        transport._dials.add(Dialled(CONN, socket, SEED, CONTROLS))
        self.refused: list[str] = []
        self.answers: list[tuple[bytes, bytes]] = []
        self.frames = self.questions = 0
        raw: Any = SimpleNamespace(bind=lambda _: None, send_multipart=self._answer)
        self.admission = Admission(
            SimpleNamespace(raw=raw),  # type: ignore[arg-type]
            self.keyring, catch_up=transport._catch_up, on_question=self._question,
            refused=self.refused.append,
        )  # fmt: skip

    def _question(self) -> None:
        assert not self.answers, "before there is an answer"
        self.questions += 1

    def _answer(self, parts: list[bytes], _flags: int) -> None:
        self.answers.append((parts[4], parts[6]))

    def answer_of_the_seed(self, frames: int = 1) -> None:
        """It has come, and nobody has read it."""
        self.send(CONTROLS, SEED, frames, b"who is there")

    def received(self, conn: Conn, _user: str | None, data: bytes | memoryview) -> None:
        assert (conn, bytes(data)) == (CONN, b"who is there")
        self.frames += 1
        self.keyring.learn("shop")

    def flush(self) -> None:
        pass

    def ask(self, mechanism: bytes = b"CURVE", *credentials: bytes) -> tuple[bytes, bytes]:
        self.admission.answer([
            b"connection", b"", b"1.0", b"1", b"mesh", b"10.0.0.7", b"", mechanism,
            *(credentials or [NetworkKeyring([SECRET]).own("shop")[0].public]),
        ])  # fmt: skip
        return self.answers.pop()


async def test_who_is_introduced_by_an_answer_that_has_come_is_no_stranger() -> None:
    """Found: a node whose loop was late said that it had refused a connection, of the very node that had introduced
    itself, in an answer it had not read yet."""
    with Asked() as one:
        assert one.ask() == REFUSED
        one.answer_of_the_seed()
        assert one.ask() == ALLOWED
        assert one.refused == ["10.0.0.7"], "before"
        assert one.questions == 2, "told each time"


async def test_what_has_come_is_taken_in_to_its_end() -> None:
    """Its signal may have been used up by asking."""
    with Asked() as one:
        one.answer_of_the_seed(FRAMES_PER_TURN + 3)
        async with trio.open_nursery() as one.transport._nursery:
            assert one.ask() == ALLOWED
            assert one.frames == FRAMES_PER_TURN, "nobody keeps the loop for itself"
        assert one.frames == FRAMES_PER_TURN + 3


@pytest.mark.parametrize(
    ("mechanism", "credentials"),
    [(b"CURVE", [b"x" * 32]), (b"CURVE", [b"x" * 32] * 2), (b"PLAIN", [b"shop", b"secret"])],
)
async def test_strangers_are_refused(mechanism: bytes, credentials: list[bytes]) -> None:
    with Asked() as one:
        one.answer_of_the_seed()
        assert one.ask(mechanism, *credentials) == REFUSED
        assert one.refused == ["10.0.0.7"]


async def test_half_a_question_is_none() -> None:
    with Asked() as one:
        one.admission.answer([b"connection", b"", b"1.0"])
        assert (one.answers, one.refused) == ([], [])
