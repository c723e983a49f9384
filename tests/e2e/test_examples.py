"""The demo is a promise too: it runs, and everything it claims holds."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(90)
def test_the_demo_holds() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything held" in done.stdout
    assert "Traceback" not in done.stderr
