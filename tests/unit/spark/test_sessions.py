"""What a session leaves when its start is interrupted."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen

import pytest

from spark.sessions import no_orphans


def test_what_was_being_started_ends_with_its_start() -> None:
    """As PySpark starts a JVM: nobody but the call that is interrupted knows the process."""
    started: list[Popen[bytes]] = []

    def launch() -> None:
        process = Popen([sys.executable, "-c", "input()"], stdin=PIPE)
        started.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), no_orphans():
        launch()
    (process,) = started
    assert process.returncode is not None
    assert process.stdin is not None
    process.stdin.close()
