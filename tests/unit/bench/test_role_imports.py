"""A role of a system imports that system's client and nothing else: its memory is told as the system's."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from bench.machine import ROOT
from bench.systems import MODULES, SYSTEMS

ROLES = ("producer", "consumer", "responder", "requester", "server")
OURS = {"mesh", "durable", "security", "discovery"}
CLIENTS = {"trio", "zmq", "nacl", "asyncio", "redis", "nats", "pika", "zenoh", "pynng", "paho"}
PROGRAM = """
import sys
from importlib import import_module
role, system = sys.argv[1:]
import_module(f"bench.roles.system_{role}")
from bench.loops import make_loop
from bench.systems import SYSTEMS
make_loop(SYSTEMS[system].loop)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported(role: str, system: str) -> set[str]:
    """Packages, once a role has all it needs but a connection."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, role, system],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_a_peer_pays_for_nothing_of_the_mesh(role: str) -> None:
    assert imported(role, "redis-raw").isdisjoint(OURS | CLIENTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "needed"),
    [
        ("redis", set()), ("mosquitto-paho", set()), ("nng", set()), ("zenoh", set()),
        ("zenoh-raw", set()),
        ("nats", {"asyncio"}), ("rabbitmq-durable", {"asyncio"}), ("jetstream", {"asyncio"}),
        ("zeromq", {"zmq"}), ("mesh-topics", {"mesh", "trio"}),
    ],
)  # fmt: skip
def test_each_system_imports_its_own_client_and_loop(system: str, needed: set[str]) -> None:
    """Client libraries are imported by what uses them, when they connect."""
    assert imported("producer", system) & (OURS | CLIENTS) == needed


def test_every_module_has_the_systems_it_is_listed_with() -> None:
    for module, names in MODULES.items():
        found = import_module(f"bench.systems.{module}").SYSTEMS
        assert tuple(system.name for system in found) == names
        assert all(SYSTEMS[name] in found for name in names)


def test_a_name_that_nobody_has_is_no_system() -> None:
    assert "carrier-pigeon" not in SYSTEMS
    with pytest.raises(KeyError):
        SYSTEMS["carrier-pigeon"]
