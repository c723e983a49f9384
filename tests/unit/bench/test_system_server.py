"""The server of a system: what is told of it once it has ended by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.comparison.serving import serving
from bench.processes import MeasurementFailed, Troupe
from bench.roles.system_server import usage_of_all, wait_listening
from bench.systems import SYSTEMS
from bench.usage import below
from tests.waiting import until_in_thread

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["redis", "nats", "rabbitmq", "mosquitto-gmqtt", "activemq", "mesh-durable"]
)
def test_a_server_is_killed_with_whoever_started_it(name: str) -> None:
    """Mosquitto, started by root, was not: whoever changes its user is forgotten by the kernel."""
    system = SYSTEMS[name]
    if why := system.missing():
        pytest.skip(why)
    with (
        pytest.raises(MeasurementFailed, match="died"),
        Troupe() as troupe,
        serving(troupe, system, connections=1),
    ):
        (role,) = troupe._roles
        servers = list(below(role.pid))
        assert servers
        os.kill(role.pid, signal.SIGKILL)
        until_in_thread(lambda: not [pid for pid in servers if Path(f"/proc/{pid}").exists()])
        role.hear()
