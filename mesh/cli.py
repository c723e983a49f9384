"""`mesh`: join a network from a shell, look around, send and receive.

Data goes to stdout, words to stderr. Exit status: 0 done, 1 the mesh said no, 2 wrong usage,
130 interrupted. A stack trace on the terminal is a bug.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import trio

from discovery.errors import DiscoveryError
from security.errors import SecurityError

from .commands import doctor, keys, members, messages, transfer
from .errors import MeshError

EXPECTED = (MeshError, SecurityError, DiscoveryError, OSError)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="mesh", description="Join a mesh, look around, send, receive."
    )
    top.add_argument("--verbose", action="store_true", help="log what happens to members and links")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for family in (keys, members, messages, transfer, doctor):
        family.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = parser().parse_args(argv)
    level = logging.INFO if args.verbose else logging.WARNING
    logging.basicConfig(level=level, format="mesh: %(message)s", stream=sys.stderr)
    try:
        if inspect.iscoroutinefunction(args.run):
            return int(trio.run(args.run, args))
        return int(args.run(args))
    except BaseException as error:
        return _explain(error)


def _explain(error: BaseException) -> int:
    """One line and a status for what may happen; anything else is raised on."""
    leaves = list(_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return 130
    if any(isinstance(leaf, BrokenPipeError) for leaf in leaves):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Whoever read has enough.
        return 0
    if not all(isinstance(leaf, EXPECTED) for leaf in leaves):
        raise error
    for leaf in leaves:
        print(f"mesh: {leaf}", file=sys.stderr)
    return 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


if __name__ == "__main__":
    sys.exit(main())
