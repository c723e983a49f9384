"""The demo is a promise too: it runs, and everything it claims holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


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
