"""`mesh-broker`: its commands as one program."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.commands.program import Parser, make_parser, run_program

from . import (
    administering,
    declaring,
    defining,
    inspecting,
    listing,
    messages,
    reading,
    salvaging,
    serving,
    status,
    verifying,
)

EPILOG = """\
exit status: 0 done, and for verify: all is well; 1 refused, failed, or damage was found; 2 wrong
usage, or a wrong setting; 130 interrupted; 143 terminated, but 0 where a command waits for that:
serve, consume, read.

serve and the commands that talk to a broker join the mesh: their settings come from options, then
MESH_* variables, then mesh.toml. inspect, verify and salvage read a directory that no broker has
open, and never change it. `mesh-broker COMMAND --help` explains a command."""


def parser() -> Parser:
    top = make_parser(
        "mesh-broker", "Run a durable broker, look into one, and into its directory.", EPILOG
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for family in (
        serving, inspecting, verifying, salvaging, status, declaring, administering, defining,
        listing, messages, reading,
    ):  # fmt: skip
        family.add(commands)
    return top


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    return run_program(parser(), argv)
