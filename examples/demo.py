"""The main job on real processes: make a network secret, start services, lose one, get it back.

make demo      ends by itself; exit status 0 only if everything was as promised
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

import trio

from discovery.finder import Found
from discovery.mdns import MdnsFinder
from examples.captured import Captured
from security.files import new_network
from spark.installed import missing_reason

SECONDS_MAX = float(os.environ.get("DEMO_SECONDS_MAX", "60"))
"""Time limit of the main job; DEMO_SECONDS_MAX raises it for a machine that is busy."""
PORTS = range(10_000, 20_000)
"""Below the ephemeral ports: until a process has bound its port, others open dozens of those."""
TALKING = ("examples.shop", "examples.ledger")
"""Modules of processes that are spoken to over stdin and stdout."""


async def multicast_problem() -> str | None:
    """Return None if nodes on this machine can find each other by zeroconf, else the reason."""
    one, other = MdnsFinder("demo-one"), MdnsFinder("demo-other")
    heard = trio.Event()

    def found(item: Found) -> None:
        heard.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(one.run, found)
        await nursery.start(other.run, lambda item: None)
        await other.announce(b"demo", 9)
        with trio.move_on_after(3):
            await heard.wait()
        problem = (
            None if heard.is_set() else one.problem() or "our own announcement does not come back"
        )
        nursery.cancel_scope.cancel()
    return problem


class Processes:
    """The services, each a process of its own; all are ended when the demo ends."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running: dict[int, subprocess.Popen[str]] = {}

    def start(self, module: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env={**self._environment, **settings}, text=True,
            stdin=subprocess.PIPE if module in TALKING else subprocess.DEVNULL,
            stdout=subprocess.PIPE if module in TALKING else None,
        )  # fmt: skip
        self._running[process.pid] = process
        return process

    def kill(self, pid: int) -> None:
        process = self._running.pop(pid)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def follow_shop(
    processes: Processes, shop: subprocess.Popen[str], data: str, deadline_s: float
) -> int:
    """Print the shop's output, carry out its lines that begin with `@`, and return its exit status."""
    assert shop.stdin is not None
    try:
        for line in lines_until(shop, deadline_s):
            answer_shop(processes, shop.stdin, line, data)
        return shop.wait(max(0.0, deadline_s - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        print(f"demo: not finished within {SECONDS_MAX:.0f} s", file=sys.stderr)
        return 1


def lines_until(process: subprocess.Popen[str], deadline_s: float) -> Iterator[str]:
    """Yield the process's lines until it ends. Raises TimeoutError after the deadline, even if it prints nothing."""
    said: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                said.put(line)
        said.put(None)

    Thread(target=read, daemon=True).start()
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            line = said.get(timeout=left_s)
        except Empty:
            break
        if line is None:
            return
        yield line
    raise TimeoutError


def answer_shop(processes: Processes, stdin: IO[str], line: str, data: str) -> None:
    """Print the line, or carry out what it asks for and answer."""
    if not line.startswith("@"):
        print(line, end="", flush=True)
        return
    command, _, argument = line[1:].strip().partition(" ")
    answer = "done"
    if command == "kill":
        processes.kill(int(argument))
    elif command == "broker":
        answer = str(processes.start("durable.cli", "serve", "--data", data).pid)
    else:
        answer = str(processes.start("examples.databases").pid)
    stdin.write(answer + "\n")
    stdin.flush()


def free_port() -> int:
    for port in random.sample(PORTS, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no free port")


def how_they_find_each_other(problem: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Print how; return the MESH_* variables of all processes, and further ones of the first process."""
    if problem is None:
        print("processes find each other through zeroconf")
        return {}, {}
    seed = f"tcp://127.0.0.1:{free_port()}"
    print(f"no multicast here ({problem}): using the seed {seed} instead")
    every = {"MESH_ZEROCONF": "false", "MESH_SEEDS": seed, "MESH_LISTEN": "tcp://127.0.0.1:0"}
    return every, {"MESH_LISTEN": seed}


def main() -> int:
    """Run the demo; return 0 only if everything was as promised."""
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        secret = Path(directory) / "network.secret"
        new_network(secret)
        print("created a network secret; the keys of all clusters are derived from it")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MESH_")},
            "MESH_NETWORK_SECRET_FILE": str(secret),
        }
        all_of_them, first = how_they_find_each_other(trio.run(multicast_problem))
        environment |= all_of_them
        processes = Processes(environment)
        try:
            processes.start("examples.caches", **first)  # The seed; a database may be killed.
            for _ in range(3):
                processes.start("examples.databases")
            shop = processes.start("examples.shop")
            data = str(Path(directory) / "broker")
            status = follow_shop(processes, shop, data, start_s + SECONDS_MAX)
            if status == 0 and (why := missing_reason()):
                print(f"skipping capture and analysis: {why}")
            elif status == 0:
                captured = Captured(processes.start, environment, directory)
                status = 0 if captured.analyse_and_replay() else 1
        finally:
            processes.end()
    seconds = time.monotonic() - start_s
    print(f"{'everything held' if status == 0 else 'FAILED'}, {seconds:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
