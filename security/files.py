"""Key files: created with mode 0600, refused if others can access them, replaced atomically.

network secret   mesh-network-1-<base32 of 32 bytes, lower case, no padding>; a second one, after
                 white space, is the previous generation
C.secret         mesh-cluster-secret-1 C <hex secret> <hex seed>          0600, on members
C.public         mesh-cluster-public-1 C <hex public> <hex verify>        on callers
C.old.secret, C.old.public: the previous generation, until it is dropped

A file appears completely or not at all, and is on disk when the function returns. If a rotation is killed
halfway, the keys still load, and calling `rotate` again completes it.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from secrets import token_bytes, token_hex

from .errors import BadKeyFile, KeyChoice, UnsafeKeyFile
from .keyring import FileKeyring, Keyring, NetworkKeyring
from .keys import GENERATE_BYTES, SECRET_BYTES, ClusterKeys, from_secrets, generate
from .names import CLUSTER, name_problem

NETWORK_PREFIX = "mesh-network-1-"
SECRET_WORD, PUBLIC_WORD = "mesh-cluster-secret-1", "mesh-cluster-public-1"
FILE_BYTES_MAX = 4096
OLD = ".old"
NO_DIRECTORY = "keys_dir is not a directory; name another"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key, as a row of `mesh keys show`."""

    cluster: str
    key_id: str
    generation: str
    has_secret: bool


def load_keyring(
    *, network_secret: str | None = None, network_secret_file: Path | None = None,
    keys_dir: Path | None = None,
) -> Keyring:  # fmt: skip
    """Load the keyring from the one source that is given.

    Raises:
        KeyChoice: no source is given, or more than one.
        UnsafeKeyFile, BadKeyFile: the source cannot be used; the text says what to do.
    """
    given = [source for source in (network_secret, network_secret_file, keys_dir) if source]
    if len(given) > 1:
        raise KeyChoice("give one of network_secret, network_secret_file and keys_dir, not several")
    if network_secret:
        return NetworkKeyring(parse_network_secret(network_secret, "network_secret"))
    if network_secret_file:
        return _network_keyring(network_secret_file)
    if keys_dir:
        return FileKeyring(read_pairs(keys_dir), str(keys_dir))
    raise KeyChoice(
        "no keys: set network_secret (MESH_NETWORK_SECRET), network_secret_file or keys_dir. "
        "`mesh keys new-network FILE` creates a secret for a whole network, "
        "`mesh keys new-cluster NAME` a pair for one cluster"
    )


def _network_keyring(path: Path) -> NetworkKeyring:
    absent_reason = (
        "No such file, but network_secret_file (MESH_NETWORK_SECRET_FILE) names it; copy the "
        f"network secret there, or create one with `mesh keys new-network {path}`"
    )
    return NetworkKeyring(
        parse_network_secret(_read(path, private=True, absent_reason=absent_reason), str(path))
    )


def parse_network_secret(text: str, what: str) -> list[bytes]:
    """Return the secrets, 32 bytes each, newest first, from a text of one or two words. Raises BadKeyFile."""
    secrets: list[bytes] = []
    for word in text.split():
        try:
            if not word.startswith(NETWORK_PREFIX):
                raise ValueError
            coded = word.removeprefix(NETWORK_PREFIX).upper()
            secret = base64.b32decode(coded + "=" * (-len(coded) % 8))
        except ValueError:
            raise BadKeyFile(what, f"want {NETWORK_PREFIX}..., as created by `mesh keys`") from None
        if len(secret) != SECRET_BYTES:
            raise BadKeyFile(what, f"the secret has {len(secret)} bytes, want {SECRET_BYTES}")
        secrets.append(secret)
    if not 1 <= len(secrets) <= 2:
        raise BadKeyFile(what, f"{len(secrets)} secrets, want one, or two during a rotation")
    if len(set(secrets)) < len(secrets):
        raise BadKeyFile(what, "contains the same secret twice; drop the old generation")
    return secrets


def format_network_secret(secret: bytes) -> str:
    return NETWORK_PREFIX + base64.b32encode(secret).decode().rstrip("=").lower()


def new_network(path: Path) -> str:
    """Make a network secret in a new file; return its text. Raises FileExistsError."""
    text = format_network_secret(token_bytes(SECRET_BYTES))
    _write(path, text + "\n", mode=0o600, replace=False)
    return text


def rotate_network(path: Path) -> None:
    """Put a new secret before the current one. Raises BadKeyFile if there are two already."""
    current = parse_network_secret(_read(path, private=True), str(path))
    if len(current) > 1:
        raise BadKeyFile(path, "a rotation is in progress; drop the old generation first")
    new = format_network_secret(token_bytes(SECRET_BYTES))
    text = f"{new}\n{format_network_secret(current[0])}\n"
    _write(path, text, mode=0o600, replace=True)


def drop_old_network(path: Path) -> bool:
    """Keep only the newest secret; return False if there was no other."""
    words = _read(path, private=True).split()
    if len(words) == 2 and words[0] == words[1]:
        words.pop()  # Every reader refuses equal secrets; dropping one repairs the file.
    current = parse_network_secret(" ".join(words), str(path))
    _write(path, format_network_secret(current[0]) + "\n", mode=0o600, replace=True)
    return len(current) > 1


def new_cluster(directory: Path, cluster: str) -> ClusterKeys:
    """Make `C.secret` and `C.public`. Raises FileExistsError, BadKeyFile."""
    _check_name(cluster)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise BadKeyFile(directory, NO_DIRECTORY) from None
    # Check both files before making either: the two halves must match.
    _check_absent(directory, cluster)
    pair = generate(cluster, token_bytes(GENERATE_BYTES))
    _write_pair(directory, pair, replace=False)
    return pair


def rotate_cluster(directory: Path, cluster: str) -> ClusterKeys:
    """Make a new pair, and keep the current one as the old generation; complete a rotation that was killed halfway.

    Raises:
        BadKeyFile: there is no secret to rotate, or there are two generations already.
    """
    _check_name(cluster)
    absent_reason = (
        f"No such file; rotate on the machine that has the secret of {cluster}, or correct the name"
    )
    current = _read_pair(directory / f"{cluster}.secret", cluster, absent_reason=absent_reason)
    there = directory / f"{cluster}{OLD}.secret"
    old = _read_pair(there, cluster) if there.exists() else None
    pair = generate(cluster, token_bytes(GENERATE_BYTES))
    if old is not None and old != current:
        if not _lacks_public(directory, old):
            raise BadKeyFile(directory, _in_progress(cluster))
        pair = current
    elif old is None:
        try:
            _check_absent(directory, cluster + OLD)
        except FileExistsError:
            raise BadKeyFile(directory, _in_progress(cluster)) from None
    # In this order there is a secret that callers know at every moment.
    _write_pair(directory, old or current, ending=OLD, replace=old is not None)
    _write_pair(directory, pair, replace=True)
    return pair


def _in_progress(cluster: str) -> str:
    return f"a rotation of {cluster} is in progress; drop the old generation first"


def _lacks_public(directory: Path, old: ClusterKeys) -> bool:
    """Return whether a rotation was killed before the public half of the new pair was written, so nobody has it."""
    path = directory / f"{old.cluster}.public"
    return path.exists() and _read_pair(path, old.cluster) == old.public_half()


def drop_old_cluster(directory: Path, cluster: str) -> bool:
    """Remove the old generation; return False if there was none.

    Raises BadKeyFile if there is no newer one: with a mistyped name the user would believe that a stolen
    key is refused from now on, and without a newer pair the only key would be deleted.
    """
    _check_name(cluster)
    if not any((directory / f"{cluster}.{kind}").exists() for kind in ("secret", "public")):
        raise BadKeyFile(directory, f"there is no new key of {cluster}; correct the name")
    found = False
    for kind in ("secret", "public"):
        path = directory / f"{cluster}{OLD}.{kind}"
        if path.exists():
            path.unlink()
            found = True
    _sync(directory)
    return found


def read_pairs(directory: Path) -> list[ClusterKeys]:
    """Return all pairs of a directory, newest first within a cluster. Raises BadKeyFile, UnsafeKeyFile."""
    try:
        is_directory = directory.is_dir()
    except OSError as error:  # No access to a parent directory, or a name too long.
        raise BadKeyFile(directory, error.strerror or str(error)) from error
    if not is_directory:
        how = f"`mesh keys new-cluster NAME --keys-dir {directory}` creates it"
        absent_reason = f"keys_dir does not exist; {how}"
        raise BadKeyFile(directory, NO_DIRECTORY if directory.exists() else absent_reason)
    found: dict[tuple[str, bool], ClusterKeys] = {}
    for path in _files(directory, ".public") + _files(directory, ".secret"):
        old = path.stem.endswith(OLD)
        pair = _read_pair(path, path.stem.removesuffix(OLD))
        # `.secret` files are read last and replace the public half, which they include.
        found[pair.cluster, old] = pair
    pairs: list[ClusterKeys] = []
    for (cluster, old), pair in sorted(found.items(), key=lambda item: item[0]):
        new = found.get((cluster, False))
        # Both generations are the same pair if a rotation was killed halfway.
        if not (old and new is not None and new.key_id == pair.key_id):
            pairs.append(pair)
    return pairs


def list_keys(
    *, network_secret_file: Path | None = None, keys_dir: Path | None = None,
    cluster: str | None = None,
) -> list[KeyRow]:  # fmt: skip
    """List the keys of a file or directory, without secrets. Reads every file, and so checks it. Raises SecurityError.

    Args:
        cluster: list only its keys; if None, the door's keys of a network secret, or all keys of a directory.
    """
    if network_secret_file is not None:
        keyring = _network_keyring(network_secret_file)
        pairs = [*(keyring.own(cluster) if cluster is not None else keyring.door())]
    else:
        pairs = _read_checked_pairs(keys_dir) if keys_dir is not None else []
    return [
        KeyRow(pair.cluster, pair.key_id.hex(), generation, pair.secret is not None)
        for _, generations in groupby(pairs, key=lambda pair: pair.cluster)
        for generation, pair in zip(("new", "old"), generations, strict=False)
        if cluster in (None, pair.cluster)
    ]


def unfinished_files(source: Path) -> list[Path]:
    """Return files that commands which were killed left in a directory of keys, or beside a file of a network secret.
    They may have a secret in them."""
    source = source.resolve()
    directory, name = source.parent, re.escape(source.name)
    if source.is_dir():
        directory, name = source, r".+\.(secret|public)"
    unfinished = re.compile(rf"\.{name}\.[0-9a-f]{{8}}")  # As `_write` names them.
    return [path for path in sorted(directory.glob(".*")) if unfinished.fullmatch(path.name)]


def _read_checked_pairs(directory: Path) -> list[ClusterKeys]:
    """Like `read_pairs`, and check that each `C.public` belongs to its `C.secret`: callers would fail otherwise.

    `read_pairs` does not check this, because a member needs only the secret half, and can run nevertheless.
    """
    pairs = read_pairs(directory)
    FileKeyring(pairs)
    for path in _files(directory, ".secret"):
        public = path.with_suffix(".public")
        if public.exists():
            cluster = path.stem.removesuffix(OLD)
            if _read_pair(public, cluster) != _read_pair(path, cluster).public_half():
                raise BadKeyFile(public, f"is not the public half of {path.name}")
    return pairs


def _files(directory: Path, ending: str) -> list[Path]:
    """List the files with this ending. Raises BadKeyFile if the directory cannot be read (`glob` finds none)."""
    try:
        return sorted(path for path in directory.iterdir() if path.name.endswith(ending))
    except OSError as error:
        raise BadKeyFile(directory, error.strerror or str(error)) from error


def _check_name(cluster: str) -> None:
    if CLUSTER.fullmatch(cluster) is None:
        raise BadKeyFile(f"cluster {cluster!r}", name_problem(cluster))
    if cluster.endswith(OLD):  # C.old.secret is the old generation of C.
        raise BadKeyFile(
            f"cluster {cluster!r}", f"a name that ends with {OLD} cannot have key files"
        )


def _check_absent(directory: Path, stem: str) -> None:
    for kind in ("secret", "public"):
        path = directory / f"{stem}.{kind}"
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _read_pair(path: Path, cluster: str, *, absent_reason: str = "") -> ClusterKeys:
    secret = path.suffix == ".secret"
    words = _read(path, private=secret, absent_reason=absent_reason).split()
    if secret and words and words[0].startswith(NETWORK_PREFIX):
        raise BadKeyFile(
            path, "contains a network secret, not a cluster's key: set network_secret_file to it"
        )
    try:
        word, name, one, other = words
        first, second = bytes.fromhex(one), bytes.fromhex(other)
        if word != (SECRET_WORD if secret else PUBLIC_WORD):
            raise ValueError
        make = from_secrets if secret else ClusterKeys
        pair = make(name, first, second)
    except ValueError:
        raise BadKeyFile(path, "not a key file created by `mesh keys`") from None
    _check_name(name)
    if name != cluster:
        raise BadKeyFile(path, f"contains the key of cluster {name!r}")
    return pair


def _read(path: Path, *, private: bool, absent_reason: str = "") -> str:
    """Return the text of a key file.

    Args:
        absent_reason: the reason to give in the error if there is no such file; the system's own if empty.
    Raises:
        BadKeyFile: the file cannot be read, or is not ASCII, or too long.
        UnsafeKeyFile: it is `private`, and its mode gives access to others than the owner.
    """
    try:
        with path.open("rb") as file:
            # The mode of the opened file: the path could be replaced between a check and `open`.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if private and mode & 0o077:
                raise UnsafeKeyFile(path, mode)
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        why = absent_reason if isinstance(error, FileNotFoundError) else ""
        raise BadKeyFile(path, why or error.strerror or str(error)) from error
    if len(data) > FILE_BYTES_MAX or not data.isascii():
        raise BadKeyFile(path, "not a key file created by `mesh keys`")
    return data.decode("ascii")


def _write_pair(directory: Path, pair: ClusterKeys, *, ending: str = "", replace: bool) -> None:
    assert pair.secret is not None
    assert pair.seed is not None
    secret = f"{SECRET_WORD} {pair.cluster} {pair.secret.hex()} {pair.seed.hex()}\n"
    public = f"{PUBLIC_WORD} {pair.cluster} {pair.public.hex()} {pair.verify.hex()}\n"
    stem = f"{pair.cluster}{ending}"
    _write(directory / f"{stem}.secret", secret, mode=0o600, replace=replace)
    _write(directory / f"{stem}.public", public, mode=0o644, replace=replace)


def _write(path: Path, text: str, *, mode: int, replace: bool) -> None:
    """Write a file completely or not at all; it is on disk on return. It has `mode` from the start: no secret leaks.

    Raises FileExistsError if `path` exists and `replace` is False.
    """
    if replace:
        path = path.resolve()  # A symbolic link stays; its target is replaced.
    if not path.parent.is_dir():
        raise BadKeyFile(path, f"there is no directory {path.parent}: create it first")
    part = path.with_name(f".{path.name}.{token_hex(4)}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            with open(file, "wb") as stream:
                if replace and path.exists() and os.geteuid() == 0:
                    # When root rotates, the service that reads the file must keep access to it.
                    owner = path.stat()
                    os.fchown(file, owner.st_uid, owner.st_gid)
                stream.write(text.encode())
                stream.flush()
                os.fsync(file)
        except OSError as error:  # Errors of write and fsync name no file.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        if replace:
            os.replace(part, path)
        else:
            os.link(part, path)  # Like a rename, but fails if `path` exists.
    finally:
        part.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Sync the directory: before that, a new name in it is not on disk."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
