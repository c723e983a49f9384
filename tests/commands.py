"""Our commands as forks of one process that has loaded their code, which saves half a second for each.

Reads a line of JSON for each command, `{"module": ..., "argv": ..., "environment": ..., "directory": ...,
"files": ...}`, runs it as `python -m MODULE` would, and prints `{"status": ...}` when it has ended. The three
files are its standard streams.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import durable.commands.console
import mesh.commands.console
from tests.processes import ANSWER_S_MAX, Process

COMMAND_S_MAX = ANSWER_S_MAX - 5
"""Time limit of a command; shorter than that of an answer, so that the answer still comes."""
LOADED = (
    *mesh.commands.console.COMMAND_MODULES, *durable.commands.console.COMMAND_MODULES,
    "durable.broker.broker", "durable.client", "mesh.node",
)  # fmt: skip


@cache
def commands() -> Process:
    """Return the process that forks commands; started with the first one, it ends with this process."""
    process = Process("tests.commands", {})
    atexit.register(process.close)
    return process


def run(
    module: str, argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], directory: Path
) -> CompletedProcess[bytes]:
    """Run a command; return what `subprocess.run` of `python -m MODULE` returns."""
    with TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        for path in files:
            path.write_bytes(stdin if path.name == "stdin" else b"")
        status = commands().call(
            "run", module=module, argv=argv, environment=dict(environment),
            directory=str(directory), files=[str(path) for path in files],
        )["status"]  # fmt: skip
        return CompletedProcess([module, *argv], status, *(path.read_bytes() for path in files[1:]))


def become(
    module: str, argv: list[str], environment: dict[str, str], directory: str, files: Iterable[str]
) -> None:
    """Become that command. SIGALRM ends it after COMMAND_S_MAX."""
    signal.alarm(COMMAND_S_MAX)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(files):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv[1:] = argv
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def fork_each() -> None:
    """Fork commands one after the other."""
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    print(json.dumps({}), flush=True)
    while line := sys.stdin.readline():
        told = json.loads(line)
        del told["do"]
        if not (pid := os.fork()):
            become(**told)
            return
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    fork_each()
