"""A command loads what it needs; help and errors load all there is."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import ModuleType

import pytest

import durable.commands.console
import mesh.commands.console

CONSOLES = (mesh.commands.console, durable.commands.console)


def commands_of(parser: argparse.ArgumentParser) -> list[str]:
    (found,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return list(found.choices)


@pytest.mark.parametrize("console", CONSOLES, ids=lambda one: one.__name__)
def test_each_family_adds_the_commands_that_are_said_of_it(console: ModuleType) -> None:
    for names in console.COMMAND_MODULES.values():
        for name in names:
            for line in ([name], ["--verbose", name, "--help"]):
                assert commands_of(console.parser(line)) == list(names)


@pytest.mark.parametrize("console", CONSOLES, ids=lambda one: one.__name__)
def test_help_and_errors_tell_of_all(console: ModuleType) -> None:
    every = [name for names in console.COMMAND_MODULES.values() for name in names]
    for line in (
        [],
        ["--help", "serve"],
        ["--version"],
        ["serv"],
        ["-v", "serve"],
        ["--", "serve"],
    ):
        assert commands_of(console.parser(line)) == every, line


def test_a_client_of_a_broker_loads_no_broker_and_no_asyncio() -> None:
    """The one took twice as long to load as what it talks to the broker with, the other a twentieth of all."""
    told = "import sys, durable.commands.console as c; c.load(['publish']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", told], stdout=subprocess.PIPE, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "mesh.zmq_transport" in modules
    assert "asyncio" not in modules
    loaded = {name for name in modules if name.startswith("durable.")}
    assert "durable.client.connection" in loaded
    assert not loaded & {"durable.broker.broker", "durable.log.log", "durable.vhost.vhost"}
