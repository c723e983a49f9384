"""The command `mesh-broker`: its commands as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mesh.commands.program import Families, Parser, add_commands, make_parser, run_program

FAMILIES: Families = {
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
exit status: 0 done, and for verify: all is well; 1 refused, failed, or damage was found; 2 wrong
usage, or a wrong setting; 130 interrupted; 143 terminated, but 0 where a command waits for that:
serve, consume, read.

serve and the commands that talk to a broker join the mesh: their settings come from options, then
MESH_* variables, then mesh.toml. inspect, verify and salvage read a directory that no broker has
open, and never change it. `mesh-broker COMMAND --help` explains a command."""


def parser(argv: Sequence[str] = ()) -> Parser:
    """Return a parser with the commands that these arguments need."""
    top = make_parser(
        "mesh-broker", "Run a durable broker, look into one, and into its directory.", EPILOG
    )
    add_commands(top, FAMILIES, argv)
    return top


def load(argv: Sequence[str]) -> Callable[[], int]:
    """Return a function that runs this command and returns its exit status."""
    return partial(run_program, parser(argv), argv)
