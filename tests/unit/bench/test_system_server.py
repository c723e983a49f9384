"""The server of a system: what is told of it once it has ended by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.roles.system_server import usage_of_all, wait_listening

FOR_EVER = [sys.executable, "-c", "import time; time.sleep(1000)"]


def test_a_server_that_is_gone_is_told_by_its_status() -> None:
    """It was a KeyError: a process that has ended has no memory to tell of."""
    with subprocess.Popen(FOR_EVER) as first, subprocess.Popen(FOR_EVER) as second:
        assert usage_of_all([first, second]).rss_bytes > 0
        second.kill()
        second.wait()
        for ask in (lambda: usage_of_all([first, second]), lambda: wait_listening(second, 1)):
            with pytest.raises(RuntimeError, match="the server ended with status -9"):
                ask()
        first.kill()
