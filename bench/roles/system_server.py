"""The server of a system: started here, ended by its process ids, killed by the kernel if this process is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.roles.stage import Stage, die_with_parent, leave_on_sigterm, play
from bench.roles.system_client import place_of
from bench.systems import SYSTEMS
from bench.systems.system import HOST, Command
from bench.usage import Usage, usage_of

START_S_MAX, POLL_S = 60.0, 0.1
Server = subprocess.Popen[bytes]


def run(stage: Stage) -> None:
    system, place = SYSTEMS[stage.settings["system"]], place_of(stage.settings)
    # Without this, SIGTERM would end this process at once; the kernel would then kill the server, which might still be
    # writing to the directory while that is deleted.
    leave_on_sigterm()
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(command, Path(place.directory)))
            for command in system.commands(place)
        ]
        wait_listening(processes[-1], place.ports[0])
        stage.usage = lambda: usage_of_all(processes)
        stage.ready()
        for _ in stage.orders():
            stage.done()


@contextmanager
def running(command: Command, directory: Path) -> Iterator[Server]:
    """Run one process and kill it at the end; its files are not kept, so it need not exit in an orderly way."""
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


def usage_of_all(processes: Sequence[Server]) -> Usage:
    """Return the summed usage. Raises RuntimeError if one of the processes has ended."""
    for process in processes:
        check_running(process)
    used = [usage_of(process.pid) for process in processes]
    return Usage(
        cpu_s=sum(one.cpu_s for one in used),
        rss_bytes=sum(one.rss_bytes for one in used),
        peak_rss_bytes=sum(one.peak_rss_bytes for one in used),
    )


def check_running(server: Server) -> None:
    if server.poll() is not None:
        raise RuntimeError(f"the server ended with status {server.returncode}")


def wait_listening(server: Server, port: int) -> None:
    """Wait until the server listens. Raises RuntimeError if it has ended, or after START_S_MAX."""
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s:
        check_running(server)
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(POLL_S)
        else:
            return
    raise RuntimeError(f"the server does not listen after {START_S_MAX:.0f} s")


if __name__ == "__main__":
    play(run)
