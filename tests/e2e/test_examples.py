"""The demo is a promise too: it runs, and everything it claims holds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

import mesh
from examples.demo import Processes, follow_shop, how_they_find_each_other, multicast_problem
from security.files import new_network


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_holds() -> None:
    """With a shorter capture than people see, beside other tests."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], capture_output=True, text=True, check=False,
        env={**os.environ, "DEMO_CAPTURE_S": "5", "DEMO_SECONDS_MAX": "240"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything held" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(60)
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
    assert "demo: not done within" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("problem", [None, "none on this machine"])
async def test_processes_of_the_demo_find_each_other_with_and_without_multicast(
    problem: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if problem is None and (why := await multicast_problem()) is not None:
        pytest.skip(f"no multicast: {why}")
    new_network(tmp_path / "secret")
    every, first = how_they_find_each_other(problem)
    assert (problem or "zeroconf") in capfd.readouterr().out
    every["MESH_NETWORK_SECRET_FILE"] = str(tmp_path / "secret")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
    processes = Processes(outside | every)
    try:
        processes.start("examples.databases", **first)
        processes.start("examples.caches")
        async with mesh.join(
            "shop", network_secret_file=tmp_path / "secret", zeroconf=not first,
            seeds=list(first.values()),
        ) as shop:  # fmt: skip
            with trio.fail_after(20):
                await shop.wait_members("databases")
                await shop.wait_members("caches")
    finally:
        processes.end()
