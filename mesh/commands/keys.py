"""`mesh keys`: make, look at, rotate and check keys. Needs no network."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from security.files import (
    KeyRow,
    describe,
    drop_old_cluster,
    drop_old_network,
    new_cluster,
    new_network,
    rotate_cluster,
    rotate_network,
)

from .options import words

DEFAULT_DIR = Path("keys")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = commands.add_parser("keys", help="make, show, rotate and check keys")
    what = keys.add_subparsers(required=True, metavar="WHAT")
    command = what.add_parser("new-network", help="one secret from which all keys derive")
    command.add_argument("file", type=Path, nargs="?", default=Path("network.secret"))
    command.set_defaults(run=_new_network)
    command = what.add_parser("new-cluster", help="a key pair for one cluster")
    command.add_argument("name")
    command.add_argument("--dir", type=Path, default=DEFAULT_DIR)
    command.set_defaults(run=_new_cluster)
    for name, run, text in (
        ("rotate", _rotate, "make a new generation; the old one stays valid"),
        ("drop-old", _drop_old, "end the old generation"),
        ("show", _show, "list keys, never a secret"),
        ("check", _show, "read every key file and say what is wrong with it"),
    ):
        command = what.add_parser(name, help=text)
        command.add_argument("--network-secret-file", type=Path)
        command.add_argument("--dir", type=Path)
        command.add_argument("--json", action="store_true")
        command.add_argument("name", nargs="?", help="cluster, with --dir")
        command.set_defaults(run=run)


def _new_network(args: argparse.Namespace) -> int:
    new_network(args.file)
    words(f"made {args.file}; give it to every node as network_secret_file, and to nobody else")
    return 0


def _new_cluster(args: argparse.Namespace) -> int:
    pair = new_cluster(args.dir, args.name)
    words(
        f"made {args.dir}/{args.name}.secret for its members and {args.name}.public for callers, "
        f"key {pair.key_id.hex()}"
    )
    return 0


def _rotate(args: argparse.Namespace) -> int:
    if args.network_secret_file is not None:
        rotate_network(args.network_secret_file)
    elif args.dir is not None and args.name:
        rotate_cluster(args.dir, args.name)
    else:
        return _wrong_usage()
    words("both generations are valid now; spread the file, restart the nodes, then drop-old")
    return 0


def _drop_old(args: argparse.Namespace) -> int:
    if args.network_secret_file is not None:
        dropped = drop_old_network(args.network_secret_file)
    elif args.dir is not None and args.name:
        dropped = drop_old_cluster(args.dir, args.name)
    else:
        return _wrong_usage()
    words("the old generation is gone" if dropped else "there was no old generation")
    return 0


def _show(args: argparse.Namespace) -> int:
    if args.network_secret_file is None and args.dir is None:
        return _wrong_usage()
    rows = describe(network_secret_file=args.network_secret_file, keys_dir=args.dir)
    if args.json:
        print(json.dumps([_as_dict(row) for row in rows]))
    for row in () if args.json else rows:
        half = "pair" if row.has_secret else "public"
        print(f"{row.cluster:24} {row.key_id}  {row.generation}  {half}")
    return 0 if rows else 1


def _as_dict(row: KeyRow) -> dict[str, object]:
    return {
        "cluster": row.cluster, "key_id": row.key_id, "generation": row.generation,
        "has_secret": row.has_secret,
    }  # fmt: skip


def _wrong_usage() -> int:
    words("give --network-secret-file FILE, or --dir DIR and the cluster's name")
    return 2
