"""The demo is a promise too: it runs, and everything it claims holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

import mesh
from examples import ledger
from examples.demo import PORTS, Processes, follow_shop, free_port
from examples.shop import ASKED, STANDS_STILL_S, WORKERS, NotAsPromised, check, held, requests
from tests.loopback import ANY_PORT
from tests.nodes import node
from tests.processes import SECRET
from tests.waiting import PATIENCE_S, until, virtual_sleep


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_holds() -> None:
    """With a shorter capture than people see, beside other tests."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], capture_output=True, text=True, check=False,
        env={**os.environ, "DEMO_CAPTURE_S": "5", "DEMO_SECONDS_MAX": "400"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything held" in done.stdout
    assert "Traceback" not in done.stderr


GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_the_port_of_the_seed_is_given_to_nobody_who_asks_for_any() -> None:
    """Found by reading: until the seed had begun, others could be given it, and nobody found anybody."""
    first, last = map(int, GIVEN.read_text().split())
    if first < PORTS.stop and PORTS.start <= last:
        pytest.skip(f"this machine gives ports {first} to {last} to anybody")
    assert not first <= free_port() <= last


def test_a_shop_that_says_nothing_does_not_hold_the_demo(capfd: pytest.CaptureFixture[str]) -> None:
    """Found by reading: the deadline was looked at with each line, and so never."""
    processes = Processes(dict(os.environ))
    silent = "import sys; print('open', flush=True); sys.stdin.read()"
    shop = subprocess.Popen(
        [sys.executable, "-c", silent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert follow_shop(processes, shop, "data", time.monotonic() + 0.2) == 1
    finally:
        shop.kill()
        shop.wait()
        if shop.stdin is not None:
            shop.stdin.close()
    assert "demo: not finished within" in capfd.readouterr().err


@pytest.mark.parametrize("status", [0, 1])
def test_a_shop_that_finds_something_else_than_promised_fails_the_demo(status: int) -> None:
    shop = subprocess.Popen(
        [sys.executable, "-c", f"raise SystemExit({status})"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with shop:
        deadline_s = time.monotonic() + PATIENCE_S
        assert follow_shop(Processes(dict(os.environ)), shop, "data", deadline_s) == status


@pytest.mark.parametrize("holds", [True, False])
def test_what_is_not_as_promised_is_the_exit_status_of_the_shop(
    holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def job() -> None:
        async with trio.open_nursery():
            check(holds, "600 requests")

    assert held(job) == (not holds)
    said = "ok" if holds else "NOT AS PROMISED"
    assert capsys.readouterr().out == f"  {said}: 600 requests\n"


class Uneven:
    """Three members, of which one answers ten requests, each after so long."""

    def __init__(self, answers_after_s: float) -> None:
        self._answers_after_s, self._count = answers_after_s, 0

    async def request(self, _target: str, _payload: bytes) -> bytes:
        self._count += 1
        slow = self._count % (WORKERS * ASKED // 10) == 0
        who = b"slow" if slow else b"%d" % (self._count % 2)
        await virtual_sleep(self._answers_after_s if slow else STANDS_STILL_S / 10)
        return who


async def test_a_member_that_stands_still_for_a_moment_has_fewer_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Found: on a busy machine this failed 3 times in 100; all of it takes a tenth of a second."""
    await requests(cast("Any", Uneven(2 * STANDS_STILL_S)))
    with pytest.raises(NotAsPromised):
        await requests(cast("Any", Uneven(STANDS_STILL_S / 2)))


async def test_what_waits_when_the_ledger_is_told_to_end_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by reading: on a busy machine the demo could find that less was replayed than was sent."""
    topics, told = [f"replayed.{number}" for number in range(100)], threading.Event()
    batches = mesh.Subscription.batches

    async def once_it_is_told(replayed: mesh.Subscription) -> AsyncIterator[Any]:
        async for batch in batches(replayed):
            yield batch
            await until(told.is_set)
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(mesh.Subscription, "batches", once_it_is_told)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(read=told.wait))
    async with node("shop") as shop, trio.open_nursery() as nursery:
        for name, value in (
            ("NETWORK_SECRET", SECRET), ("ZEROCONF", "false"), ("LISTEN", ANY_PORT),
            ("SEEDS", shop.endpoints[0]),
        ):  # fmt: skip
            monkeypatch.setenv(f"MESH_{name}", value)
        nursery.start_soon(ledger.main)
        await shop.wait_subscribers(topics[0])
        for topic in topics:
            await shop.publish(topic, b"x")
        (link,) = shop._core.peering.links.values()
        await until(lambda: not link.statistics().unacked_bytes + link.statistics().outbox_bytes)
        told.set()
    assert json.loads(capsys.readouterr().out) == dict.fromkeys(topics, 1)


WITHOUT_MULTICAST = """
import sys
from examples import demo

async def problem():
    return "none for this test"

demo.multicast_problem, demo.missing_reason = problem, lambda: "left out of this test"
sys.exit(demo.main())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_main_job_holds_without_multicast() -> None:
    """Found: the database that was killed was the seed, so the restarted one found nobody."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MULTICAST], capture_output=True, text=True, check=False,
        env={**os.environ, "DEMO_SECONDS_MAX": "400"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no multicast here (none for this test): using the seed" in done.stdout
    assert "everything held" in done.stdout
