"""The program `mesh`: all its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .program import CommandModules, Parser, add_commands, make_parser, run_program

COMMAND_MODULES: CommandModules = {
    "mesh.commands.keys": ("keys",),
    "mesh.commands.members": ("members",),
    "mesh.commands.messages": ("request", "publish", "subscribe", "broadcast", "serve"),
    "mesh.commands.transfer": ("send-file", "receive-file"),
    "mesh.commands.doctor": ("doctor",),
    # Packages built on the mesh; the mesh itself knows only these names.
    "spark.commands.capture": ("capture",),
    "spark.commands.replay": ("replay",),
}
EPILOG = """\
exit status: 0 success; 1 failure (no members, refused, timed out, no key of a cluster, or a problem that
doctor found); 2 invalid usage, name or setting; 130 interrupted by Ctrl-C; 143 terminated by SIGTERM,
but 0 for commands that run until then: serve, subscribe, receive-file.

Settings are read from options, then MESH_* variables, then mesh.toml: docs/configuration.md.
`mesh COMMAND --help` explains a command."""


def parser(argv: Sequence[str] = ()) -> Parser:
    """Return a parser with the commands that these arguments need."""
    top = make_parser("mesh", "Join a mesh from a shell: list members, send, receive.", EPILOG)
    add_commands(top, COMMAND_MODULES, argv)
    return top


def load(argv: Sequence[str]) -> Callable[[], int]:
    """Return a function that runs this command and returns its exit status."""
    return partial(run_program, parser(argv), argv)
