"""`mesh-bench setup`: which systems are installed, which are not, and the command that installs all."""

from __future__ import annotations

import argparse
from typing import Any

from bench.systems import PACKAGES, SYSTEMS

from .usage import show

CLIENTS = "pip install -r requirements-bench.txt"


def add(commands: Any) -> None:
    parser = commands.add_parser("setup", help="which systems are installed; how to get the others")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    width = max(map(len, SYSTEMS))
    lines = [
        f"{name:{width}}  {system.missing() or 'installed'}  ({system.client})"
        for name, system in SYSTEMS.items()
    ]
    install = f"All of them, on Debian: apt-get install {' '.join(PACKAGES)} && {CLIENTS}"
    show("\n".join([*lines, "", install]))
    return 0
