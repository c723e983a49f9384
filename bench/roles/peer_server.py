"""Another broker's server: started here, ended by its process ids, killed if this process is."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import peer
from bench.peers.peer import HOST
from bench.roles.stage import Stage, die_with_parent, play
from bench.usage import usage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.peers.peer import Command

START_S_MAX, POLL_S = 60.0, 0.1


def run(stage: Stage) -> None:
    settings = stage.settings
    directory, ports = Path(settings["directory"]), settings["ports"]
    with ExitStack() as stack:
        for command in peer(settings["peer"]).commands(directory, ports):
            server = stack.enter_context(running(command, directory))
        wait_listening(server, ports[0])
        stage.usage = lambda: usage_of(server.pid)
        stage.ready()
        for _ in stage.orders():
            stage.done()


@contextmanager
def running(command: Command, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Nothing on its disk is kept, so it need not be asked to leave."""
    process = subprocess.Popen(
        command.words,
        env={**os.environ, **command.environment},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_listening(server: subprocess.Popen[bytes], port: int) -> None:
    """Raises RuntimeError: it ended, or took too long."""
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(POLL_S)
        else:
            return
    raise RuntimeError(f"the server does not listen after {START_S_MAX:.0f} s")


if __name__ == "__main__":
    play(run)
