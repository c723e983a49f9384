"""The shop: uses every messaging pattern once, then keeps sending requests while a database dies and comes back.

python -m examples.shop      started by examples.demo, which carries out the lines with `@`
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

import mesh
from examples.orders import durable_orders

DATABASES = 3
FILE_BYTES = 256 << 20
PART_BYTES = 64 << 10
WORKERS, ASKED = 24, 25
SHARE_MIN = WORKERS * ASKED // DATABASES // 4
"""The least count of requests for each member; with less, requests are not spread."""
STANDS_STILL_S = 0.02
"""The time of ten queries: a member this slow is slower than the others with all their outstanding requests."""


class NotAsPromised(Exception):
    """The result is not what the README promises."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def check(holds: bool, what: str) -> None:
    """Print a result. Raises NotAsPromised, which ends the demo, unless it holds."""
    say(f"  {'ok' if holds else 'NOT AS PROMISED'}: {what}")
    if not holds:
        raise NotAsPromised


async def requests(node: mesh.Node) -> None:
    say("requests are spread over the members of a cluster; the shop knows only its name")
    answered: Counter[bytes] = Counter()
    slowest_s = 0.0

    async def ask() -> None:
        nonlocal slowest_s
        for _ in range(ASKED):
            asked_s = trio.current_time()
            answered[await node.request("databases", b"select 1")] += 1
            slowest_s = max(slowest_s, trio.current_time() - asked_s)

    async with trio.open_nursery() as nursery:
        for _ in range(WORKERS):
            nursery.start_soon(ask)
    shares = ", ".join(f"{pid.decode()}: {count}" for pid, count in sorted(answered.items()))
    # On a busy machine a member may stall for half of this time, and rightly gets fewer requests.
    shared = min(answered.values()) >= SHARE_MIN or slowest_s > STANDS_STILL_S
    check(
        len(answered) == DATABASES and shared,
        f"{WORKERS * ASKED} requests, answers per process: {shares}",
    )


async def topics(node: mesh.Node) -> None:
    say("orders are published; every subscriber receives them")
    orders, flushes = map(int, (await node.request("caches/heard", b"")).split())
    for number, region in enumerate(("eu", "us", "asia"), start=1):
        await node.publish(f"orders.{region}.created", f"number {number}".encode())
    told = await node.broadcast("caches", b"flush")
    wanted, heard = f"{orders + 3} {flushes + 1}".encode(), b""
    with trio.move_on_after(5):
        while heard != wanted:
            heard = await node.request("caches/heard", b"")
    check(told == 1 and heard == wanted,
          f"3 orders were received, and a broadcast reached {told} member of caches")  # fmt: skip


async def file_transfer(node: mesh.Node) -> None:
    say(f"a file of {FILE_BYTES >> 20} MB is sent through a tunnel to one database")
    part = bytes(range(256)) * (PART_BYTES // 256)
    parts = FILE_BYTES // PART_BYTES
    sent = hashlib.sha256()
    start_s = trio.current_time()
    async with node.open_tunnel("databases/store") as tunnel:
        for number in range(parts):
            part = number.to_bytes(8, "little") + part[8:]
            sent.update(part)
            await tunnel.send(part)
            bar(number + 1, parts)
        await tunnel.send_eof()
        received = b"".join([answer async for answer in tunnel])
    rate = FILE_BYTES / 1e6 / (trio.current_time() - start_s)
    check(received == sent.digest(), f"SHA-256 matches, {rate:.0f} MB/s with hashing at both ends")


def bar(done: int, total: int) -> None:
    """Show progress: one growing line on a terminal, elsewhere a line per quarter."""
    if sys.stderr.isatty() and done % 64 == 0:
        filled = 40 * done // total
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r  [{'#' * filled:<40}] {100 * done // total:3} %{end}")
        sys.stderr.flush()
    elif done % (total // 4) == 0:
        say(f"  {100 * done // total:3} %")


@dataclass
class Traffic:
    """Results of the workers' requests: answers by process id, the time of each one's last answer, and failures."""

    answered: Counter[int] = field(default_factory=Counter)
    last_answer_s: dict[int, float] = field(default_factory=dict)
    failures: list[mesh.MeshError] = field(default_factory=list)
    running: bool = True

    async def work(self, node: mesh.Node) -> None:
        while self.running:
            try:
                pid = int(await node.request("databases", b"select 1"))
            except mesh.MeshError as error:
                self.failures.append(error)
            else:
                self.answered[pid] += 1
                self.last_answer_s[pid] = trio.current_time()


async def ask_demo(command: str) -> str:
    """Ask the demo to do something to a process, and return its answer."""
    say(f"@{command}")
    answer: str = await trio.to_thread.run_sync(sys.stdin.readline)
    return answer.strip()


async def crash(node: mesh.Node) -> None:
    say("one database is killed with SIGKILL while requests run")
    traffic = Traffic()
    async with trio.open_nursery() as nursery:
        for _ in range(WORKERS):
            nursery.start_soon(traffic.work, node)
        while len(traffic.answered) < DATABASES:
            await trio.sleep(0.05)
        victim = min(traffic.answered)
        before = {member.node for member in node.members("databases")}
        killed_s = trio.current_time()
        await ask_demo(f"kill {victim}")
        with trio.fail_after(5):
            while len(node.members("databases")) == DATABASES:
                await trio.sleep(0.001)
        gone_s = trio.current_time() - killed_s
        gone = before - {member.node for member in node.members("databases")}
        await trio.sleep(1)
        lost = [error for error in traffic.failures if isinstance(error, mesh.PeerLost)]
        check(len(lost) == len(traffic.failures) <= WORKERS
              and {error.peer for error in lost} <= {node.hex()[:8] for node in gone},
              f"{len(traffic.failures)} requests failed, all of them in flight on process {victim}")  # fmt: skip
        check(gone_s < 2, f"no requests go to it {1000 * gone_s:.0f} ms after the kill")
        failed = len(traffic.failures)
        restarted = int(await ask_demo("restart"))
        with trio.fail_after(10):
            await node.wait_members("databases", count=DATABASES)
            while not traffic.answered[restarted]:
                await trio.sleep(0.01)
        await trio.sleep(0.5)
        check(len(traffic.failures) == failed, "no request failed after that")
        check(True, f"the restarted member, process {restarted}, "
                    f"answered {traffic.answered[restarted]} requests since")  # fmt: skip
        traffic.running = False


async def main() -> None:
    start_s = trio.current_time()
    async with mesh.join("shop") as node:
        with trio.fail_after(15):
            await node.wait_members("databases", count=DATABASES)
            await node.wait_members("caches")
        say(
            f"shop: found all members {1000 * (trio.current_time() - start_s):.0f} ms after joining"
        )
        await requests(node)
        await topics(node)
        await file_transfer(node)
        await crash(node)
        say("a broker stores orders, is killed with SIGKILL in between, and restarted")
        await durable_orders(node, ask_demo, check)


def held(job: Callable[[], Awaitable[None]]) -> int:
    """Run a job; return exit status 0 only if all that it checks was as promised."""
    status = 0
    try:
        trio.run(job)
    except* NotAsPromised:
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(held(main))
