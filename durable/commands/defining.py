"""`mesh-broker definitions export` and `import`: everything declared in a vhost, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from mesh.commands.options import Commands, path
from mesh.commands.terminal import print_stderr, write_stdout

from ..broker.directory import DEFAULT_VHOST
from ..definition_checks import check_name
from ..errors import (
    BuiltIn,
    DefinitionConflict,
    DurableError,
    InvalidDefinition,
    UnknownExchange,
    UnknownQueue,
)
from ..errors.root import shown
from ..protocol.definition_bytes import BYTES_MAX
from .options import add_broker_options, connected

STDIO = Path("-")
FILE_BYTES_MAX = 2 * BYTES_MAX
"""The JSON that `export` writes takes at most twice the bytes of what is sent to the broker."""

WRONG_CONTENTS = (BuiltIn, DefinitionConflict, InvalidDefinition, UnknownExchange, UnknownQueue)


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "definitions", help="export or import everything declared in a vhost, as JSON"
    )
    inner = command.add_subparsers(required=True, metavar="COMMAND", title="commands")
    export_parser = inner.add_parser(
        "export", help="write all definitions to a file",
        description="Write everything declared in a vhost to a file, except what does not survive a "
        "restart of\nthe broker: exclusive queues, queues in memory, and bindings to them.",
    )  # fmt: skip
    export_parser.add_argument(
        "file",
        type=path,
        help="file to write, or - for stdout; a regular file is replaced atomically",
    )
    add_broker_options(export_parser)
    export_parser.set_defaults(run=export_definitions)
    import_parser = inner.add_parser(
        "import", help="declare everything in a file",
        description="Declare everything in a file, all or nothing. What already exists with the same "
        "settings\nremains as it is; if it exists with other settings, that is an error. A file "
        "exported from one vhost\ncan be imported into another one; `declare-vhost` creates one.",
    )  # fmt: skip
    import_parser.add_argument("file", type=path, help="file written by export, or - for stdin")
    add_broker_options(import_parser, None, "the vhost named in the file")
    import_parser.set_defaults(run=import_definitions)


async def export_definitions(args: argparse.Namespace) -> int:
    async with connected(args) as broker:
        found = await broker.export_definitions()
    text = as_json(found)
    if args.file == STDIO:
        write_stdout(text.encode())  # JSON is UTF-8, whatever the terminal shows.
        return 0
    # Opening a FIFO blocks until somebody reads it, which may never happen, so it has to be cancellable.
    await trio.to_thread.run_sync(write_file, args.file, text, abandon_on_cancel=True)
    print_stderr(
        f"{args.file}: {_counts_text({k: len(v) for k, v in found.items() if isinstance(v, list)})}"
    )
    return 0


def as_json(definitions: dict[str, Any]) -> str:
    return json.dumps(definitions, indent=2, ensure_ascii=False) + "\n"


def write_file(file: Path, text: str) -> None:
    """Replace the file as a whole or not at all, keeping its mode and resolving symlinks. A file that is not
    regular, such as a device or a FIFO, is written into."""
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8") as opened:
            opened.write(text)
        return
    target = Path(os.path.realpath(file))
    new = target.with_name(f".{target.name}.new")
    try:
        new.touch()
        if target.exists():
            new.chmod(stat.S_IMODE(target.stat().st_mode))
        new.write_text(text, encoding="utf-8")
        os.replace(new, target)
    except OSError as error:  # Name the file that was asked for, not the temporary one.
        raise OSError(error.errno, error.strerror, os.fspath(file)) from error
    finally:
        new.unlink(missing_ok=True)


async def import_definitions(args: argparse.Namespace) -> int:
    plain = _read(args.file)
    if args.vhost is None:
        args.vhost = plain.get("vhost", DEFAULT_VHOST)
        with _naming(args.file):
            check_name("definitions", "vhost", args.vhost)
    else:
        plain["vhost"] = args.vhost
    async with connected(args) as broker:
        with _naming(args.file):
            new = await broker.import_definitions(plain)
    print_stderr(f"declared: {_counts_text({f'{kind}s': number for kind, number in new.items()})}")
    return 0


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Let errors in the block that are about the file's contents begin with its name."""
    try:
        yield
    except WRONG_CONTENTS as error:
        error.args = (f"{file}: {error}",)
        raise


def _read(file: Path) -> dict[str, object]:
    """Raises DurableError if it is not a JSON object, or if an object in it has a name twice."""
    if file == STDIO:
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with file.open("rb") as source:
            data = source.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise DurableError(f"{file}: more than {FILE_BYTES_MAX} bytes")
    try:
        plain = json.loads(data, object_pairs_hook=partial(_as_dict, file))
    except (ValueError, RecursionError) as error:
        raise DurableError(f"{file}: not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise DurableError(f"{file}: want a JSON object, as `definitions export` writes it")
    return plain


def _as_dict(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises DurableError if a name is there twice: Python would silently take the later value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = Counter(name for name, _ in pairs)
        raise DurableError(
            f"{file}: {shown(max(seen, key=seen.__getitem__))} appears twice in one object"
        )
    return found


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items()) or "nothing new"
