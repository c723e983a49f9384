"""`mesh-bench setup`: what is there, what is not, and the one line that installs it."""

from __future__ import annotations

import argparse
from typing import Any

from bench.systems import PACKAGES, SYSTEMS

CLIENTS = "pip install -r requirements-bench.txt"


def add(commands: Any) -> None:
    parser = commands.add_parser("setup", help="which systems are installed; how to get the others")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    width = max(map(len, SYSTEMS))
    for name, system in SYSTEMS.items():
        print(f"{name:{width}}  {system.missing() or 'installed'}  ({system.client})")
    print(f"\nAll of them, on Debian: apt-get install {' '.join(PACKAGES)} && {CLIENTS}")
    return 0
