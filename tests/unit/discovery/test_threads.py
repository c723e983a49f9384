"""Where no thread can be started, finders have a problem, until one can be started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from discovery.dns import DnsFinder
from discovery.errors import ResponderError
from discovery.file import FileFinder
from discovery.finder import Finder
from discovery.responder import open_zeroconf
from tests.waiting import until


async def none_left(*_: object, **__: object) -> NoReturn:
    """As `trio.to_thread.run_sync` fails where the process may have no more threads."""
    await trio.lowlevel.checkpoint()
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    "make",
    [
        lambda _: DnsFinder("dns://127.0.0.1:9000", retry_s=0.01),
        lambda path: FileFinder(path, poll_s=0.01),
    ],
    ids=["dns", "file"],
)
async def test_without_a_thread_a_finder_waits_for_one(
    make: Callable[[Path], Finder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    nursery: trio.Nursery,
) -> None:  # fmt: skip
    """Found: the error ended the node, as a crash."""
    (tmp_path / "nodes").write_text("tcp://127.0.0.1:9000\n")
    finder: Finder = make(tmp_path / "nodes")
    found = trio.Event()
    with monkeypatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", none_left)
        await nursery.start(finder.run, lambda _: found.set())
        await until(lambda: "can't start new thread" in (finder.problem() or ""))
        assert not found.is_set()
    await until(lambda: found.is_set() and finder.problem() is None)
    nursery.cancel_scope.cancel()


async def test_without_a_thread_there_is_no_responder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", none_left)
    with pytest.raises(ResponderError, match=r"^can't start new thread$"):
        await open_zeroconf("ab12", ["127.0.0.1"], lambda *_: None)
