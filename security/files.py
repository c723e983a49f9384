"""Key files: made with mode 0600, refused when others can read them, replaced atomically.

network secret   mesh-network-1-<base32 of 32 bytes>; a second line is the previous generation
C.secret         mesh-cluster-secret-1 C <hex secret> <hex seed>          0600, on members
C.public         mesh-cluster-public-1 C <hex public> <hex verify>        on callers
C.old.secret, C.old.public: the previous generation, until `drop_old`
"""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes

from .announcement import NAME
from .errors import BadKeyFile, KeyChoice, UnsafeKeyFile
from .keyring import FileKeyring, Keyring, NetworkKeyring
from .keys import GENERATE_BYTES, SECRET_BYTES, ClusterKeys, from_secrets, generate

NETWORK_PREFIX = "mesh-network-1-"
SECRET_WORD, PUBLIC_WORD = "mesh-cluster-secret-1", "mesh-cluster-public-1"
FILE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key as `mesh keys show` lists it."""

    cluster: str
    key_id: str
    generation: str
    has_secret: bool


def load_keyring(
    *, network_secret: str | None, network_secret_file: Path | None, keys_dir: Path | None
) -> Keyring:
    """The keyring from the one source that is given.

    Raises:
        KeyChoice: none is given, or more than one.
        UnsafeKeyFile, BadKeyFile: the source cannot be used; the text says what to do.
    """
    given = [source for source in (network_secret, network_secret_file, keys_dir) if source]
    if len(given) > 1:
        raise KeyChoice("give one of network_secret, network_secret_file and keys_dir, not several")
    if network_secret:
        return NetworkKeyring(parse_network_secret(network_secret, "network_secret"))
    if network_secret_file:
        text = _read_secret(network_secret_file)
        return NetworkKeyring(parse_network_secret(text, str(network_secret_file)))
    if keys_dir:
        return FileKeyring(read_pairs(keys_dir))
    raise KeyChoice(
        "no keys: set MESH_NETWORK_SECRET, network_secret_file or keys_dir. "
        "`mesh keys new-network FILE` makes a secret for a whole network"
    )


def parse_network_secret(text: str, what: str) -> list[bytes]:
    """Secrets of 32 bytes, newest first, from one or two words. Raises BadKeyFile."""
    secrets: list[bytes] = []
    for word in text.split():
        try:
            if not word.startswith(NETWORK_PREFIX):
                raise ValueError
            coded = word.removeprefix(NETWORK_PREFIX).upper()
            secret = base64.b32decode(coded + "=" * (-len(coded) % 8))
        except ValueError:
            raise BadKeyFile(what, f"want {NETWORK_PREFIX}..., as `mesh keys` makes it") from None
        if len(secret) != SECRET_BYTES:
            raise BadKeyFile(what, f"the secret has {len(secret)} bytes, want {SECRET_BYTES}")
        secrets.append(secret)
    if not 1 <= len(secrets) <= 2:
        raise BadKeyFile(what, f"{len(secrets)} secrets, want one, or two while rotating")
    return secrets


def format_network_secret(secret: bytes) -> str:
    return NETWORK_PREFIX + base64.b32encode(secret).decode().rstrip("=").lower()


def new_network(path: Path) -> str:
    """Make a network secret in a new file; return its text. Raises FileExistsError."""
    text = format_network_secret(token_bytes(SECRET_BYTES))
    _write(path, text + "\n", mode=0o600, replace=False)
    return text


def rotate_network(path: Path) -> None:
    """Put a new secret before the one in use. Raises BadKeyFile when two are there already."""
    current = parse_network_secret(_read_secret(path), str(path))
    if len(current) > 1:
        raise BadKeyFile(path, "a rotation is under way; drop the old generation first")
    new = format_network_secret(token_bytes(SECRET_BYTES))
    text = f"{new}\n{format_network_secret(current[0])}\n"
    _write(path, text, mode=0o600, replace=True)


def drop_old_network(path: Path) -> bool:
    """Keep only the newest secret; False when there was no other."""
    current = parse_network_secret(_read_secret(path), str(path))
    _write(path, format_network_secret(current[0]) + "\n", mode=0o600, replace=True)
    return len(current) > 1


def new_cluster(directory: Path, cluster: str) -> ClusterKeys:
    """Make `C.secret` and `C.public`. Raises FileExistsError, BadKeyFile."""
    _check_name(cluster)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pair = generate(cluster, token_bytes(GENERATE_BYTES))
    _write_pair(directory, cluster, pair, replace=False)
    return pair


def rotate_cluster(directory: Path, cluster: str) -> ClusterKeys:
    """Make a new pair and keep the one in use as the old generation."""
    _check_name(cluster)
    if (directory / f"{cluster}.old.secret").exists():
        raise BadKeyFile(directory, f"{cluster} is rotating; drop the old generation first")
    for ending in ("secret", "public"):
        os.replace(directory / f"{cluster}.{ending}", directory / f"{cluster}.old.{ending}")
    pair = generate(cluster, token_bytes(GENERATE_BYTES))
    _write_pair(directory, cluster, pair, replace=False)
    return pair


def drop_old_cluster(directory: Path, cluster: str) -> bool:
    """Remove the old generation; False when there was none."""
    found = False
    for ending in ("secret", "public"):
        path = directory / f"{cluster}.old.{ending}"
        if path.exists():
            path.unlink()
            found = True
    return found


def read_pairs(directory: Path) -> list[ClusterKeys]:
    """All pairs of a directory, of each cluster the newest first. Raises BadKeyFile and others."""
    if not directory.is_dir():
        raise BadKeyFile(directory, "is no directory; `mesh keys new-cluster NAME` makes one")
    found: dict[tuple[str, bool], ClusterKeys] = {}
    for path in sorted(directory.glob("*.public")) + sorted(directory.glob("*.secret")):
        old = path.stem.endswith(".old")
        pair = _parse_pair(path)
        if path.stem.removesuffix(".old") != pair.cluster:
            raise BadKeyFile(path, f"holds the key of cluster {pair.cluster!r}")
        found[pair.cluster, old] = pair  # The secret half, read later, holds the public one too.
    return [found[key] for key in sorted(found)]


def describe(*, network_secret_file: Path | None = None, keys_dir: Path | None = None) -> list[KeyRow]:  # fmt: skip
    """What there is, without a secret in it."""
    if network_secret_file is not None:
        text = _read_secret(network_secret_file)
        keyring = NetworkKeyring(parse_network_secret(text, str(network_secret_file)))
        pairs = [(pair, place) for place, pair in enumerate(keyring.door())]
    else:
        every = read_pairs(keys_dir) if keys_dir is not None else []
        places = [sum(one.cluster == pair.cluster for one in every[:at]) for at, pair in enumerate(every)]  # fmt: skip
        pairs = list(zip(every, places, strict=True))
    return [
        KeyRow(pair.cluster, pair.key_id.hex(), "old" if place else "new", pair.secret is not None)
        for pair, place in pairs
    ]


def _check_name(cluster: str) -> None:
    if NAME.fullmatch(cluster) is None:
        raise BadKeyFile(f"cluster {cluster!r}", "want 1 to 63 of a-z 0-9 . _ -")


def _parse_pair(path: Path) -> ClusterKeys:
    secret = path.suffix == ".secret"
    words = (_read_secret(path) if secret else path.read_text()[:FILE_BYTES_MAX]).split()
    try:
        word, cluster, one, other = words
        first, second = bytes.fromhex(one), bytes.fromhex(other)
        if word != (SECRET_WORD if secret else PUBLIC_WORD) or len(first) != 32 != len(second):
            raise ValueError
    except ValueError:
        raise BadKeyFile(path, "not a key file as `mesh keys` makes it") from None
    _check_name(cluster)
    return from_secrets(cluster, first, second) if secret else ClusterKeys(cluster, first, second)


def _read_secret(path: Path) -> str:
    """Raises UnsafeKeyFile when anybody but the owner may touch it, BadKeyFile when unreadable."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise UnsafeKeyFile(path, mode)
            return file.read(FILE_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKeyFile(path, getattr(error, "strerror", None) or "not a key file") from error


def _write_pair(directory: Path, cluster: str, pair: ClusterKeys, *, replace: bool) -> None:
    assert pair.secret is not None
    assert pair.seed is not None
    secret = f"{SECRET_WORD} {cluster} {pair.secret.hex()} {pair.seed.hex()}\n"
    public = f"{PUBLIC_WORD} {cluster} {pair.public.hex()} {pair.verify.hex()}\n"
    _write(directory / f"{cluster}.secret", secret, mode=0o600, replace=replace)
    _write(directory / f"{cluster}.public", public, mode=0o644, replace=replace)


def _write(path: Path, text: str, *, mode: int, replace: bool) -> None:
    """Write whole or not at all, never readable by others for an instant."""
    target = path.with_name(f".{path.name}.{os.getpid()}") if replace else path
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    if replace:
        os.replace(target, path)
