"""`mesh keys`: makes, shows, rotates and checks keys. Needs no network."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from security.files import (
    KeyRow,
    drop_old_cluster,
    drop_old_network,
    list_keys,
    new_cluster,
    new_network,
    rotate_cluster,
    rotate_network,
    unfinished_files,
)

from ..errors import MeshError
from ..names import check_cluster
from ..settings import key_source
from .options import Commands, WrongUsage, add_keys, path
from .options import settings as given_settings
from .terminal import print_stderr

FILE, DIRECTORY = Path("network.secret"), Path("keys")
"""Where new keys are written if neither an option nor a setting names a place."""
NOT_OVERWRITTEN = (
    "{file} exists and was not overwritten; `mesh keys rotate` replaces keys that are in use"
)
NETWORK_ROTATED = """\
{file} now holds two generations, the new one first. Both are valid. Next:
 1. copy {file} to every node, replacing the old file (mode 600)
 2. restart the nodes one by one, seeds last
 3. when all run with the new file: mesh keys drop-old --network-secret-file {file}
 4. copy and restart once more; after that, the old secret is no longer accepted"""
CLUSTER_ROTATED = """\
{name} now has two generations, {name}.* and {name}.old.*. Both are valid. Next:
 1. copy {name}.secret and {name}.old.secret to the members of {name} (mode 600)
 2. copy {name}.public and {name}.old.public to every other node that has {name}.public
 3. restart all these nodes one by one, seeds last
 4. when all run with the new files: mesh keys drop-old {name} --keys-dir {directory}
 5. remove {name}.old.* from all other nodes and restart them once more"""


def add(commands: Commands) -> None:
    keys = commands.add_parser(
        "keys", help="create, show, rotate and check keys",
        description="One secret for a whole network (new-network), or a pair for each cluster "
        "(new-cluster),\nfor clusters that must not impersonate each other. docs/guide.md says "
        "which node needs which file.",
    )  # fmt: skip
    actions = keys.add_subparsers(required=True, metavar="WHAT", title="actions")
    command = actions.add_parser(
        "new-network", help="create a network secret, from which all keys are derived"
    )
    command.add_argument(
        "file", type=path, nargs="?",
        help=f"file to create; must not exist yet (default: MESH_NETWORK_SECRET_FILE, then {FILE})",
    )  # fmt: skip
    command.set_defaults(run=_new_network)
    command = actions.add_parser("new-cluster", help="create a key pair for one cluster")
    command.add_argument(
        "name", metavar="CLUSTER", help="name of the cluster, 1 to 63 of a-z 0-9 . _ -"
    )
    command.add_argument(
        "--keys-dir", type=path, metavar="DIR",
        help=f"key directory; created if missing (default: MESH_KEYS_DIR, then {DIRECTORY})",
    )  # fmt: skip
    command.set_defaults(run=_new_cluster)
    for name, run, text in (
        ("rotate", _rotate, "create a new generation of keys; the old one stays valid"),
        ("drop-old", _drop_old, "remove the old generation of keys"),
        ("show", _show, "list keys, but never a secret"),
        ("check", _check, "read every key file and report what is wrong"),
    ):
        command = actions.add_parser(name, help=text)
        command.add_argument(
            "name", nargs="?", metavar="CLUSTER",
            help="only this cluster; rotate and drop-old require it with --keys-dir and reject it "
            "with a network secret",
        )  # fmt: skip
        add_keys(command)
        if run in (_show, _check):
            command.add_argument(
                "--json", action="store_true", help="print one JSON document, a list"
            )
        command.set_defaults(run=run)
    for command in actions.choices.values():
        command.add_argument("--dir", dest="keys_dir", type=path, help=argparse.SUPPRESS)


def _new_network(args: argparse.Namespace) -> int:
    file = args.file or _from_settings(args)[0] or FILE
    if file.is_dir():
        raise MeshError(f"{file} is a directory: name a file in it")
    try:
        new_network(file)
    except FileExistsError:
        raise MeshError(NOT_OVERWRITTEN.format(file=file)) from None
    print_stderr(
        f"created {file}; give it to every node as network_secret_file, and to nobody else"
    )
    return 0


def _new_cluster(args: argparse.Namespace) -> int:
    check_cluster(args.name)
    directory = args.keys_dir or _from_settings(args)[1] or DIRECTORY
    try:
        pair = new_cluster(directory, args.name)
    except FileExistsError as error:
        raise MeshError(NOT_OVERWRITTEN.format(file=error.filename)) from None
    name = directory / args.name
    print_stderr(
        f"created {name}.secret for its members, {name}.public for all nodes they talk to, "
        f"key {pair.key_id.hex()}"
    )
    return 0


def _rotate(args: argparse.Namespace) -> int:
    file, directory = _source_to_change(args)
    if file is not None:
        rotate_network(file)
        text = NETWORK_ROTATED.format(file=file)
    else:
        assert directory is not None
        rotate_cluster(directory, args.name)
        text = CLUSTER_ROTATED.format(name=args.name, directory=directory)
    for line in text.splitlines():
        print_stderr(line)
    return 0


def _drop_old(args: argparse.Namespace) -> int:
    file, directory = _source_to_change(args)
    if file is not None:
        dropped, what = drop_old_network(file), str(file)
    else:
        assert directory is not None
        dropped, what = drop_old_cluster(directory, args.name), f"{args.name}.* in {directory}"
    print_stderr(
        f"removed the old generation; copy {what} to all nodes that have it, then restart them"
        if dropped
        else "there was no old generation"
    )
    return 0


def _source_to_change(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Return the one source whose keys are to be changed, checked against the cluster given. Raises WrongUsage."""
    file, directory = _source(args)
    if file is not None and args.name:
        raise WrongUsage(
            f"{file} is the secret of the whole network: omit {args.name}, or give --keys-dir"
        )
    if directory is not None and not args.name:
        raise WrongUsage(f"{directory} holds keys of clusters: name the cluster to change")
    return file, directory


def _show(args: argparse.Namespace) -> int:
    return 0 if _list(args, *_source(args)) else 1


def _check(args: argparse.Namespace) -> int:
    file, directory = _source(args)
    rows = _list(args, file, directory)
    source = directory or file
    assert source is not None
    for left in unfinished_files(source):
        print_stderr(f"{left}: left by a command that was killed, maybe with a secret; remove it")
    if rows:
        print_stderr(f"all keys are valid: {len(rows)}")
    return 0 if rows else 1


def _list(args: argparse.Namespace, file: Path | None, directory: Path | None) -> list[KeyRow]:
    """Print the keys of the one source given."""
    if args.name:
        check_cluster(args.name)
    rows = list_keys(network_secret_file=file, keys_dir=directory, cluster=args.name)
    if args.json:
        print(json.dumps([_as_dict(row) for row in rows]))
    for row in () if args.json else rows:
        half = "pair" if row.has_secret else "public"
        print(f"{row.cluster:24} {row.key_id}  {row.generation}  {half}")
    if not rows:
        print_stderr(f"no key {f'of {args.name} ' if args.name else ''}in {directory}")
    return rows


def _source(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Return the secret file or the key directory, from options or settings. Raises WrongUsage."""
    file, directory = _from_settings(args)
    if file is None and directory is None:
        source, origin = key_source(given_settings(args))
        if source:
            raise WrongUsage(
                f"network_secret ({origin}) is text, not a file: give --network-secret-file FILE"
            )
        raise WrongUsage(
            "no keys: give --network-secret-file FILE or --keys-dir DIR, "
            "or set MESH_NETWORK_SECRET_FILE or MESH_KEYS_DIR"
        )
    return file, directory


def _from_settings(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    source, _ = key_source(given_settings(args))
    return source.get("network_secret_file"), source.get("keys_dir")


def _as_dict(row: KeyRow) -> dict[str, object]:
    return {
        "cluster": row.cluster, "key_id": row.key_id, "generation": row.generation,
        "has_secret": row.has_secret,
    }  # fmt: skip
