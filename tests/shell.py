"""The command line as people use it: real processes, in a network with one seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from security.files import new_network
from tests import commands
from tests.loopback import ANY_PORT, HOST
from tests.nodes import free_ports


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class Shell:
    """Runs `mesh`, or another program, with one network secret and one seed address."""

    def __init__(self, directory: Path, module: str = "mesh.cli") -> None:
        self.directory, self._module = directory, module
        self.seed = f"tcp://{HOST}:{free_ports(1)}"
        secret = directory / "network.secret"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
        self.environment = {
            **environment, "MESH_NETWORK_SECRET_FILE": str(secret), "MESH_ZEROCONF": "false",
            "MESH_SEEDS": self.seed, "MESH_LISTEN": ANY_PORT,
        }  # fmt: skip
        new_network(secret)

    def run(
        self, *words: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end: in a fork, or in a new process if variables differ that Python reads at start."""
        whole = {**self.environment, **(environment or {})}
        if of_python(whole) == of_python(os.environ):
            done = commands.run(self._module, words, stdin, whole, self.directory)
        else:
            done = subprocess.run(
                [sys.executable, "-m", self._module, *words], input=stdin, capture_output=True,
                env=whole, cwd=self.directory, timeout=commands.COMMAND_S_MAX, check=False,
            )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", self._module, *words], env=self.environment, cwd=self.directory,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command during the block, which is entered after its first line on stderr."""
        process = self.start(*words)
        try:
            assert process.stderr is not None
            assert process.stderr.readline(), f"it said nothing, and ended with {process.wait(10)}"
            yield process
        finally:
            process.kill()
            process.communicate()
