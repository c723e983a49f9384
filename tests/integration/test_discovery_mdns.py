"""MdnsFinder over real zeroconf: one process, two processes, two network namespaces.

Run as a script this file is the peer of the tests:
    python test_discovery_mdns.py INSTANCE ANNOUNCEMENT [INTERFACE]
It runs until its stdin ends and prints `found HEX` and `problem TEXT` as they come.
Announcements are random, and those of others may be any bytes: other tests and real nodes run on the
same multicast group at the same time.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from discovery.finder import Found
from discovery.interfaces import host_id
from discovery.mdns import MdnsFinder, MdnsSettings

LOOPBACK = ["127.0.0.1"]
BACKSTOP_S = 20.0
"""Never reached when things work; found on loopback is a matter of 0.2 s."""
ROOT = Path(__file__).parents[2]
CALM = MdnsSettings(retry_s=0.5)


def announcement() -> bytes:
    return secrets.token_hex(16).encode()


class Inbox:
    """A sink that can be waited on."""

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self._more = trio.Event()

    def __call__(self, found: Found) -> None:
        self.counts[found.announcement] += 1
        self._more.set()
        self._more = trio.Event()

    async def wait(self, expected: bytes, count: int = 1) -> None:
        with trio.fail_after(BACKSTOP_S):
            while self.counts[expected] < count:
                await self._more.wait()


@asynccontextmanager
async def running(
    interfaces: list[str] | None = LOOPBACK, said: bytes = b""
) -> AsyncGenerator[tuple[MdnsFinder, Inbox]]:
    finder, inbox = MdnsFinder(secrets.token_hex(8), interfaces=interfaces, settings=CALM), Inbox()
    if said:
        await finder.announce(said, 9000)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(BACKSTOP_S):
            await nursery.start(finder.run, inbox)
        yield finder, inbox
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module", autouse=True)
def multicast_on_loopback() -> None:
    """Skips all of this file where the kernel does not loop multicast back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(2)
        group = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
        try:
            probe.bind(("", 0))
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            probe.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
            )
            probe.sendto(b"echo", ("224.0.0.251", probe.getsockname()[1]))
            probe.recv(10)
        except OSError as error:
            pytest.skip(f"this machine has no multicast on loopback: {error}")


@pytest.mark.parametrize("interfaces", [LOOPBACK, None], ids=["loopback", "all"])
async def test_two_finders_find_each_other(interfaces: list[str] | None) -> None:
    one, two = announcement(), announcement()
    async with (
        running(interfaces, one) as (first, heard_by_one),
        running(interfaces, two) as (second, heard_by_two),
    ):
        await heard_by_two.wait(one)
        await heard_by_one.wait(two)
        assert heard_by_one.counts[one] == heard_by_two.counts[two] == 0, "own instance"
        assert first.problem() is second.problem() is None


async def test_a_late_comer_that_announces_nothing_finds() -> None:
    said = announcement()
    async with running(said=said), running() as (_, heard):
        await heard.wait(said)


async def test_the_largest_announcement_arrives() -> None:
    said = secrets.token_bytes(1300)
    async with running(said=said), running() as (_, heard):
        await heard.wait(said)


@pytest.mark.slow
async def test_updates_and_goodbyes() -> None:
    one, two, three = announcement(), announcement(), announcement()
    async with running() as (_, heard), running(said=one) as (finder, _):
        await heard.wait(one)
        await finder.announce(two, 9000)
        await heard.wait(two)
        await finder.announce(three, 9001)
        await heard.wait(three)
        # The same content again is news only if the goodbye was heard.
        await finder.withdraw()
        await finder.announce(three, 9001)
        await heard.wait(three, 2)


async def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    async with running(said=announcement()):
        assert len(set(threading.enumerate()) - before) >= 2, "zeroconf's loop and browser"
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert all(name.startswith("Trio") for name in left), left


async def test_cancelled_while_opening() -> None:
    before = set(threading.enumerate())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(MdnsFinder("ab12", interfaces=LOOPBACK).run, Inbox())
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert all(name.startswith("Trio") for name in left), left


SHORT_OF_DESCRIPTORS = """
import os, resource, trio
from discovery.errors import ResponderError
from discovery.responder import load_zeroconf, open_zeroconf

async def main():
    load_zeroconf()
    await trio.to_thread.run_sync(os.getpid)
    used = max(map(int, os.listdir("/proc/self/fd")))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in (3, 4, 5, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, most))
        try:
            responder = await open_zeroconf("ab12", ["127.0.0.1"], lambda *_: None)
            await responder.close()
            print("opened")
        except ResponderError as error:
            print(error)

trio.run(main)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to count descriptors in")
def test_short_of_descriptors_it_cannot_open_and_does_not_hang() -> None:
    """Found: its thread died without a word, and the node could not even be ended."""
    command = [sys.executable, "-c", SHORT_OF_DESCRIPTORS]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    *short, enough = done.stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in short] == ["Too many open files"] * 3
    assert enough == "opened"


CLOSED_WITH_A_QUESTION = """
import gc, trio
from discovery.responder import open_zeroconf

async def main():
    responder = await open_zeroconf("ab12", ["127.0.0.1"], lambda *_: None)
    responder.query("nobody")
    await responder.close()

trio.run(main)
gc.collect()
"""


def test_a_question_without_an_answer_ends_with_the_responder() -> None:
    """Found: asyncio wrote on stderr, at the end of a process, that a task of it had been destroyed."""
    command = [sys.executable, "-W", "error", "-c", CLOSED_WITH_A_QUESTION]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=True
    )
    assert done.stdout == b""


async def test_no_usable_interface_is_a_problem() -> None:
    async with running(["203.0.113.77"], announcement()) as (finder, _):
        problem = finder.problem() or ""
        assert problem.startswith("no multicast on this machine: 203.0.113.77: ")


class Peer:
    """This file as a process of its own."""

    def __init__(self, *prefix: str, interface: str = "", said: bytes = b"") -> None:
        self.said = said or announcement()
        self.lines: list[str] = []
        self._command = [*prefix, sys.executable, "-W", "error", __file__, secrets.token_hex(8)]
        self._command += [self.said.decode(), *([interface] if interface else [])]
        self._more = trio.Event()
        self._ended = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Peer]:
        """On leaving, the process must end by itself and must not have complained."""
        process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdin is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, process)
            try:
                yield self
            finally:
                with trio.move_on_after(BACKSTOP_S, shield=True):
                    await process.stdin.aclose()
                    await process.wait()
                if process.returncode is None:
                    process.kill()
        words = ("found ", "problem ")
        complaints = [line for line in self.lines if not line.startswith(words)]
        assert not complaints, "\n".join(complaints)
        assert process.returncode == 0

    async def wait(self, expected: str) -> None:
        """For a line that contains `expected`; the lines up to it are forgotten."""
        with trio.move_on_after(BACKSTOP_S):
            while not self._ended:
                for at, line in enumerate(self.lines):
                    if expected in line:
                        del self.lines[: at + 1]
                        return
                await self._more.wait()
        pytest.fail(f"no {expected!r} in {self.lines}")

    async def _read(self, process: trio.Process) -> None:
        assert process.stdout is not None
        rest = ""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk.decode()).split("\n")
            self.lines += lines
            self._wake()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()


@pytest.mark.slow
async def test_two_processes_find_each_other() -> None:
    """Also beside a node whose announcement is no text, which once ended one of them."""
    one, two = Peer(interface="127.0.0.1"), Peer(interface="127.0.0.1")
    async with running(said=b"\xc9\xff\n" + announcement()), one.running(), two.running():
        await one.wait(f"found {two.said.hex()}")
        await two.wait(f"found {one.said.hex()}")


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a veth pair, deleted by name."""
    names = tuple(f"mesh-disc-{os.getpid()}-{end}" for end in "ab")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ends = [f"md{os.getpid()}{end}" for end in "ab"]
            ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", ends[1])
            ip("link", "set", ends[1], "netns", names[1])
            for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
                ip("-n", name, "addr", "add", f"10.213.0.{number}/24", "dev", end)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield names[0], names[1]
    finally:
        for name in names:  # the veth pair goes with them
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=10)


def _up(name: str, *links: str) -> None:
    for link in links or (f"md{os.getpid()}{name[-1]}",):
        subprocess.run(["ip", "-n", name, "link", "set", link, "up"], check=True, timeout=10)


@pytest.mark.slow
async def test_two_hosts_find_each_other(namespaces: tuple[str, str]) -> None:
    one, two = (Peer("ip", "netns", "exec", name) for name in namespaces)
    for name in namespaces:
        _up(name)
    async with one.running(), two.running():
        await one.wait(f"found {two.said.hex()}")
        await two.wait(f"found {one.said.hex()}")


@pytest.mark.slow
async def test_a_host_without_network_waits_for_one(namespaces: tuple[str, str]) -> None:
    async with Peer("ip", "netns", "exec", namespaces[0]).running() as peer:
        await peer.wait("problem no multicast on this machine: ")
        _up(namespaces[0], "lo")
        await peer.wait("problem None")
        for name in namespaces:
            _up(name)
        async with Peer("ip", "netns", "exec", namespaces[1]).running() as late:
            await peer.wait(f"found {late.said.hex()}")
            await late.wait(f"found {peer.said.hex()}")


@pytest.mark.slow
def test_host_ids_tell_namespaces_apart(namespaces: tuple[str, str]) -> None:
    command = [
        sys.executable,
        "-c",
        "from discovery.interfaces import host_id; print(host_id().hex())",
    ]

    def host_id_in(*prefix: str) -> str:
        ran = subprocess.run([*prefix, *command], check=True, stdout=subprocess.PIPE, cwd=ROOT)
        return ran.stdout.decode().strip()

    ids = [host_id_in(), *(host_id_in("ip", "netns", "exec", name) for name in namespaces)]
    assert len(set(ids)) == 3
    assert ids[0] == host_id().hex()


async def main(instance: str, said: str, interfaces: list[str]) -> None:
    settings = MdnsSettings(retry_s=0.5, relist_s=1.0)
    finder = MdnsFinder(instance, interfaces=interfaces or None, settings=settings)
    await finder.announce(said.encode(), 9000)

    def sink(found: Found) -> None:
        print(f"found {found.announcement.hex()}", flush=True)

    async def tell_problems() -> None:
        told: str | None = None
        while True:
            if (problem := finder.problem()) != told:
                told = problem
                print(f"problem {problem}", flush=True)
            await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        await nursery.start(finder.run, sink)
        nursery.start_soon(tell_problems)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])
