"""A broker's directory under the offline commands of `mesh-broker`, which must leave it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from durable.cli import main
from durable.log.checkpoints import Checkpoint, Checkpoints
from durable.log.encryption import Encryption
from durable.log.header import segment_name
from durable.log.real_disk import RealDisk
from durable.queues.journal import Journal
from durable.queues.lane import Lane
from tests.logs import STORE_ID
from tests.stores import LANE, QUEUE, declared, fingerprint, make_store, message, settled

MESSAGES = 40


class Offline:
    """A broker's directory `data`, with 40 messages in several segments, of which 0 to 4 are settled."""

    def __init__(
        self, path: Path, capsys: pytest.CaptureFixture[str], encryption: Encryption | None = None
    ) -> None:
        self.path, self._capsys = path, capsys
        drafts = [declared(), *map(message, range(MESSAGES)), settled((0, 5))]
        self.log = make_store(path / "data", drafts, encryption=encryption)
        self.first, self.second = (self.log / segment_name(number) for number in (1, 2))

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command, check that it leaves `data` unchanged, and return its status, stdout and stderr."""
        before = fingerprint(self.path / "data")
        status = main(list(words))
        assert fingerprint(self.path / "data") == before, words
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return status, said.out, said.err

    def json(self, *words: str) -> tuple[int, Any]:
        status, out, _ = self.run(*words, "--json")
        return status, json.loads(out)


def checkpoint(directory: Offline, position: int, *, twice: bool = False) -> None:
    """Made by hand: messages 20 to 29 are settled, and the log does not say so."""
    lane = Lane(LANE, Journal(), logged=True)
    lane.settle(20, 30)
    enq, ack = lane.encode()
    packed = msgpack.packb([(LANE, enq)]), msgpack.packb((0, [(LANE, ack)]))
    disk = RealDisk(directory.log)
    files = Checkpoints(disk, STORE_ID, lambda: position)
    files.write_all([Checkpoint(QUEUE, LANE, position, *packed, twice)])
    disk.close()
