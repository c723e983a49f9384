"""Real processes for tests, given commands as lines of JSON and ended by their process ids.

with member("databases", seeds=[...]) as process:
    process.call("pid"); process.kill(); process.freeze(); process.thaw()
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from security.files import format_network_secret
from tests.loopback import ANY_PORT

SECRET = format_network_secret(b"tests of the mesh, 32 bytes long")
ANSWER_S_MAX = 40


class Process:
    """A `python -m MODULE` that prints one line of JSON when it is ready, and one per command."""

    def __init__(
        self, module: str, arguments: Mapping[str, Any], python: Sequence[str] = (sys.executable,)
    ) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
        self._process = subprocess.Popen(
            [*python, "-m", module, json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._buffer = b""
        try:
            self.ready: dict[str, Any] = self.read()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def read(self) -> Any:
        """Return the next line that it prints, decoded."""
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_S_MAX)
            assert readable, f"process {self.pid} said nothing for {ANSWER_S_MAX} s"
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            assert piece, f"process {self.pid} ended, status {self._process.wait(5)}"
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def tell(self, command: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def call(self, command: str, **arguments: Any) -> Any:
        self.tell(command, **arguments)
        return self.read()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Kill it, unless it has ended, and close its pipes."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def member(cluster: str, **settings: Any) -> Process:
    """Start a member of `cluster` in a process of its own; `.ready["endpoint"]` is its address."""
    settings = {
        "zeroconf": False, "network_secret": SECRET, "listen": ANY_PORT, **settings
    }  # fmt: skip
    return Process("tests.member", {"cluster": cluster, "settings": settings})
