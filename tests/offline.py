"""A broker's directory under the offline commands of `mesh-broker`, which must leave it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from durable.cli import main
from durable.log.encryption import Encryption
from durable.log.header import segment_name
from tests.stores import declared, fingerprint, make_store, message, settled

MESSAGES = 40


class Offline:
    """`data`: with 40 messages in several segments, 0 to 4 settled."""

    def __init__(
        self, path: Path, capsys: pytest.CaptureFixture[str], encryption: Encryption | None = None
    ) -> None:
        self.path, self._capsys = path, capsys
        drafts = [declared(), *map(message, range(MESSAGES)), settled((0, 5))]
        self.log = make_store(path / "data", drafts, encryption=encryption)
        self.first, self.second = (self.log / segment_name(number) for number in (1, 2))

    def run(self, *words: str) -> tuple[int, str, str]:
        """Status, stdout, stderr; `data` is not changed."""
        before = fingerprint(self.path / "data")
        status = main(list(words))
        assert fingerprint(self.path / "data") == before, words
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return status, said.out, said.err

    def json(self, *words: str) -> tuple[int, Any]:
        status, out, _ = self.run(*words, "--json")
        return status, json.loads(out)
