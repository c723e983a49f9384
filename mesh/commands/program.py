"""Runs a program of commands: parser, log, exit status, and one line for every error.

Data goes to stdout, words go to stderr. A stack trace on the terminal is a bug.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import trio

from discovery.errors import DiscoveryError
from security.errors import NoKey, SecurityError

from ..entry import leaf_errors, terminable
from ..errors import CannotBind, ConfigError, InvalidName, KeyMissing, MeshError, NodeCrashed
from .options import WrongUsage
from .terminal import escape_unencodable, flush_stdout, line_prefix, print_stderr

CommandModules = Mapping[str, Sequence[str]]
"""Modules, each with the commands that it adds."""

EXPECTED = (MeshError, SecurityError, DiscoveryError, OSError)
DONE, FAILED, USAGE_ERROR = 0, 1, 2
VERBOSE = "--verbose"


class Parser(argparse.ArgumentParser):
    """Accepts options and positionals in any order, and names the command in its errors, each of which is one line."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **keywords)
        self._parsing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse options and positionals intermixed. Subparsers call this, and so do both passes of that parse."""
        if self._parsing or self._subparsers is not None or (args and {"-h", "--help"} & {*args}):
            return super().parse_known_args(args, namespace)
        self._parsing = True
        try:
            found, extras = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._parsing = False
        if extras:
            self.error(f"unrecognized arguments: {' '.join(extras)}")
        found.parser = self
        return found, extras

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help; raise an error if it cannot be written, which argparse's own would ignore and exit with 0."""
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        file.write(message)
        flush_stdout()

    def error(self, message: str) -> NoReturn:
        """Exit with one line, without the usage, which would be longer than the error."""
        self.exit(USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser(name: str, description: str, epilog: str) -> Parser:
    """Return a parser with the options that all programs have."""
    top = Parser(prog=name, description=description, epilog=epilog)
    top.add_argument("--version", action=_Version, help="print the version and exit")
    top.add_argument(VERBOSE, action="store_true", help="log changes of members and links")
    return top


class _Version(argparse.Action):
    """Looks the version up only when asked: importing what that needs takes a tenth of a command's time."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(nargs=0, **keywords)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("durable-mesh")
        except PackageNotFoundError:
            found = "of unknown version, not installed"
        parser._print_message(f"{parser.prog} {found}\n", sys.stdout)
        parser.exit()


def add_commands(top: Parser, modules: CommandModules, argv: Sequence[str]) -> None:
    """Add the command that these arguments name, and others of its module: loading takes longer than most commands.

    If they name no command, all are added, so that help or the error lists them.
    """
    named = next((word for word in argv if word != VERBOSE), None)
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    selected = [module for module, names in modules.items() if named in names]
    for module in selected or modules:
        import_module(module).add(commands)


def run_program(parser: Parser, argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    with line_prefix(parser.prog):
        return _run(parser, argv)


def _run(parser: Parser, argv: Sequence[str] | None) -> int:
    escape_unencodable()
    try:
        args = parser.parse_args(argv)
        level = logging.INFO if args.verbose else logging.WARNING
        logging.basicConfig(level=level, format=f"{parser.prog}: %(message)s", stream=sys.stderr)
        with terminable():
            is_async = inspect.iscoroutinefunction(args.run)
            status = int(trio.run(args.run, args) if is_async else args.run(args))
            flush_stdout()
            return status
    except WrongUsage as error:
        command: Parser = args.parser
        command.error(str(error))
    except BaseException as error:
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Print a line for each expected error and return the exit status; raise any other error again."""
    with suppress(OSError):  # It was reported already, or matters less than `error`.
        flush_stdout()
    found = list(leaf_errors(error))
    for leaf in found:
        if isinstance(leaf, KeyboardInterrupt):
            raise leaf
    if any(isinstance(leaf, BrokenPipeError) for leaf in found):
        return DONE  # The reader of stdout has closed it.
    if not all(isinstance(leaf, EXPECTED) for leaf in found):
        raise error
    for leaf in found:
        print_stderr(_text(leaf))
    return USAGE_ERROR if all(map(_is_usage_error, found)) else FAILED


def _is_usage_error(error: BaseException) -> bool:
    """Return whether it is an error of usage: an invalid name or setting, wherever it was set.

    A port that is in use is not, nor a cluster without a key: then nothing that was typed is wrong.
    """
    if isinstance(error, KeyMissing):
        return not isinstance(error.__cause__, NoKey)
    return isinstance(error, ConfigError | InvalidName) and not isinstance(error, CannotBind)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, NodeCrashed) and error.__cause__ is not None:
        causes = (f"{type(one).__name__}: {one}" for one in leaf_errors(error.__cause__))
        return f"{error}: {'; '.join(causes)}"
    return str(error)
