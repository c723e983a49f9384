"""`mesh`: its commands as one program."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from . import doctor, keys, members, messages, transfer
from .program import Parser, make_parser, run_program

ABOVE = ("spark.commands.capture", "spark.commands.replay")
"""Families of what is built on top of the mesh, by name: nothing here knows more of them."""
EPILOG = """\
exit status: 0 done; 1 the mesh or this machine said no (nobody there, refused, timed out, no key of a
cluster, and what doctor found wrong); 2 wrong usage, name or setting; 130 interrupted; 143 terminated,
but 0 where a command waits for that: serve, subscribe, receive-file.

Settings come from options, then MESH_* variables, then mesh.toml: docs/configuration.md.
`mesh COMMAND --help` explains a command."""


def parser() -> Parser:
    top = make_parser("mesh", "Join a mesh from a shell: look around, send, receive.", EPILOG)
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for family in (keys, members, messages, transfer, doctor):
        family.add(commands)
    for name in ABOVE:
        import_module(name).add(commands)
    return top


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    return run_program(parser(), argv)
