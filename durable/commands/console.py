"""The command `mesh-broker`: its commands as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mesh.commands.program import CommandModules, Parser, add_commands, make_parser, run_program

COMMAND_MODULES: CommandModules = {
    "durable.commands.serving": ("serve",),
    "durable.commands.inspecting": ("inspect",),
    "durable.commands.verifying": ("verify",),
    "durable.commands.salvaging": ("salvage",),
    "durable.commands.status": ("status",),
    "durable.commands.declaring": (
        "declare-queue", "declare-exchange", "declare-stream", "delete-queue", "delete-exchange",
        "delete-stream", "bind", "unbind", "delete-cursor", "purge",
    ),
    "durable.commands.administering": (
        "vhosts", "declare-vhost", "delete-vhost", "permissions", "set-permission",
        "clear-permission",
    ),
    "durable.commands.defining": ("definitions",),
    "durable.commands.listing": ("bindings", "cursors"),
    "durable.commands.messages": ("publish", "consume"),
    "durable.commands.reading": ("read",),
}  # fmt: skip
EPILOG = """\
exit status: 0 success, and for verify: no problems; 1 refused, failed, or damage found; 2 invalid
usage or setting; 130 interrupted by Ctrl-C; 143 terminated by SIGTERM, but 0 for commands that run
until then: serve, consume, read.

serve and the commands that talk to a running broker join the mesh: they read settings from options,
then MESH_* variables, then mesh.toml. inspect, verify and salvage read a directory that no broker
has open, and never change it. `mesh-broker COMMAND --help` explains a command."""


def parser(argv: Sequence[str] = ()) -> Parser:
    """Return a parser with the commands that these arguments need."""
    top = make_parser("mesh-broker", "Run, inspect and administer a durable broker.", EPILOG)
    add_commands(top, COMMAND_MODULES, argv)
    return top


def load(argv: Sequence[str]) -> Callable[[], int]:
    """Return a function that runs this command and returns its exit status."""
    return partial(run_program, parser(argv), argv)
