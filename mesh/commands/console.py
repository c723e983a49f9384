"""The program `mesh`: all its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .program import Families, Parser, add_commands, make_parser, run_program

FAMILIES: Families = {
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
exit status: 0 done; 1 the mesh or this machine said no (nobody there, refused, timed out, no key of a
cluster, and what doctor found wrong); 2 wrong usage, name or setting; 130 interrupted; 143 terminated,
but 0 where a command waits for that: serve, subscribe, receive-file.

Settings come from options, then MESH_* variables, then mesh.toml: docs/configuration.md.
`mesh COMMAND --help` explains a command."""


def parser(argv: Sequence[str] = ()) -> Parser:
    """Return a parser with the commands that these arguments need."""
    top = make_parser("mesh", "Join a mesh from a shell: look around, send, receive.", EPILOG)
    add_commands(top, FAMILIES, argv)
    return top


def load(argv: Sequence[str]) -> Callable[[], int]:
    """Return a function that runs this command and returns its exit status."""
    return partial(run_program, parser(argv), argv)
