"""The other finders against the real file system, resolver and interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from discovery.dns import DnsFinder
from discovery.file import FileFinder
from discovery.finder import Found

BACKSTOP_S = 10.0
ROOT = Path(__file__).parents[2]


async def test_a_file_that_is_renamed_over(tmp_path: Path, nursery: trio.Nursery) -> None:
    path, new = tmp_path / "nodes", tmp_path / "nodes.new"
    send, receive = trio.open_memory_channel[Found](100)
    finder = FileFinder(path, poll_s=0.01)
    with trio.fail_after(BACKSTOP_S):
        await nursery.start(finder.run, send.send_nowait)
        for endpoint in ("tcp://a:1", "tcp://b:2"):
            new.write_text(endpoint)
            new.rename(path)
            assert (await receive.receive()).endpoint == endpoint
            assert finder.problem() is None
    nursery.cancel_scope.cancel()


async def test_localhost_resolves(nursery: trio.Nursery) -> None:
    send, receive = trio.open_memory_channel[Found](100)
    with trio.fail_after(BACKSTOP_S):
        await nursery.start(DnsFinder("dns://localhost:9000").run, send.send_nowait)
        found = await receive.receive()
    nursery.cancel_scope.cancel()
    assert found.endpoint in {"tcp://127.0.0.1:9000", "tcp://[::1]:9000"}


def test_importing_discovery_loads_neither_zeroconf_nor_the_mesh() -> None:
    script = (
        "import discovery.dns, discovery.file, discovery.mdns, discovery.seeds, sys\n"
        "print({n.partition('.')[0] for n in sys.modules}"
        " & {'zeroconf', 'ifaddr', 'asyncio', 'mesh', 'security', 'zmq', 'nacl'})"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=30,
    )
    assert result.stdout == "set()\n"
