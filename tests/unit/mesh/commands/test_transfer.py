"""What a sender may say of a file, and where a file goes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mesh.commands import transfer
from mesh.commands.transfer import NAME_BYTES_MAX, Progress, place, read_head, safe_name, store
from mesh.errors import MeshError, TunnelBroken


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "x\n", 7, None, "n" * 256, "\x7f",
     "\ud800", "a\u202eb", "é" * 128],
)  # fmt: skip
def test_a_peer_cannot_write_elsewhere(name: object) -> None:
    with pytest.raises(MeshError):
        safe_name(name)


@pytest.mark.parametrize("name", ["a", "n" * 255, "é" * 127, "report 2026 (1).pdf"])
def test_good_names(name: str) -> None:
    assert safe_name(name) == name
    assert read_head(json.dumps({"name": name, "size": 0}).encode()) == (name, 0)


@pytest.mark.parametrize(
    "head",
    [b"", b"{", b"[]", b"7", b"null", b'"x"', b"{}", b'{"name": "a"}', b'{"size": 1}',
     b'{"name": "a", "size": -1}', b'{"name": "a", "size": 1.0}', b'{"name": "a", "size": "1"}',
     b'{"name": "a", "size": true}', b'{"name": "a", "size": Infinity}',
     b'{"name": "a", "size": 1e999}', b'{"name": "a", "size": null}', b"\xff",
     b"[" * 4000, b'{"name": "a", "size": 1, "x": "' + b"x" * 5000 + b'"}',
     b'{"name": "a", "size": ' + b"9" * 4060 + b"}"],
)  # fmt: skip
def test_a_head_that_is_none_is_refused(head: bytes) -> None:
    with pytest.raises(MeshError):
        read_head(head)


def test_the_first_free_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "part"
    part.write_text("x")
    assert [place(part, tmp_path, "a").name for _ in range(3)] == ["a", "a.1", "a.2"]
    long = "é" * 127
    (tmp_path / long).mkdir()
    second = place(part, tmp_path, long).name
    assert second == "é" * 126 + ".1"
    assert len(second.encode()) <= NAME_BYTES_MAX
    monkeypatch.setattr(transfer, "NAMESAKES_MAX", 2)
    with pytest.raises(MeshError, match="2 more files of this name exist"):
        place(part, tmp_path, "a")


@pytest.mark.parametrize("terminal", [False, True])
async def test_progress_is_a_bar_on_a_terminal_and_a_line_per_tenth_elsewhere(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    progress = Progress(1000)
    for _ in range(200):
        progress.add(5)
    said = capsys.readouterr().err
    assert said.count("\n") == (1 if terminal else 11), "a bar stays in its line"
    shown = said.split("\r" if terminal else "\n")
    assert len([text for text in shown if "MB/s" in text]) == (101 if terminal else 11)
    assert "100 %" in said.splitlines()[-1]
    assert (f"[{'#' * 30}]" in said) == terminal


async def test_a_file_whose_sender_has_gone_is_stored_and_told(tmp_path: Path) -> None:
    """Found: five were in the directory and one on stdout, and --count waited for the others."""

    class Deserted:
        """All has come through it, and nobody hears the answer."""

        def __init__(self) -> None:
            self._parts = [b'{"name": "a", "size": 2}', b"x", b"y"]

        def __aiter__(self) -> Deserted:
            return self

        async def __anext__(self) -> bytes:
            if not self._parts:
                raise StopAsyncIteration
            return self._parts.pop(0)

        async def send(self, part: bytes) -> None:
            raise TunnelBroken("the link is gone")

    tunnel: Any = Deserted()
    stored = await store(tunnel, tmp_path)
    assert (stored, stored.read_bytes()) == (tmp_path / "a", b"xy")
    assert os.listdir(tmp_path) == ["a"]
