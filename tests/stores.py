"""A broker's directory with known contents, made without a broker; its key, and damage to it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from durable.broker.directory import make_vhost
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.log.bodies import encode_acks, encode_definitions
from durable.log.encryption import Encryption
from durable.log.real_disk import RealDisk
from durable.log.record import Draft, Kind, Target
from durable.vhost import changes
from mesh.protocol.batch import batch_pieces
from tests.logs import PUBLISHER, PlainLog

LANE = 1
QUEUE = "jobs"


def declared(name: str = QUEUE, lane: int = LANE) -> Draft:
    change = [changes.QUEUE, [lane], to_plain(QueueDefinition(name=name))]
    return Draft(Kind.DEFINITIONS, encode_definitions([change]))


def message(number: int, lane: int = LANE) -> Draft:
    """Return a record of one message, `message N`, padded to 200 bytes."""
    pieces, _ = batch_pieces(PUBLISHER, 1, number, 0, QUEUE.encode(), [payload(number)])
    return Draft(Kind.PUBLISH, b"".join(pieces), (Target(lane, number),), 1)


def payload(number: int) -> bytes:
    return f"message {number} ".encode().ljust(200, b".")


def settled(*ranges: tuple[int, int], lane: int = LANE) -> Draft:
    return Draft(Kind.ACKS, encode_acks({lane: ranges}))


def make_store(
    data: Path, drafts: Iterable[Draft], *, encryption: Encryption | None = None
) -> Path:
    """Write records to the vhost `/` in segments of 4 KiB; return the directory of its log."""
    data.mkdir(exist_ok=True)
    directory = make_vhost(data, "/")
    log = PlainLog(RealDisk(directory), encryption=encryption)
    for draft in drafts:
        log.write(draft)
    log.close()
    return directory


def secret_file(path: Path, secret: str) -> str:
    """Write a secret file that only its owner may read, as is required, and return its path."""
    path.write_text(secret + "\n")
    path.chmod(0o600)
    return str(path)


def fingerprint(data: Path) -> dict[str, tuple[int, int, str]]:
    """Return size, time and hash of every file: whatever a change would change."""
    return {
        str(path.relative_to(data)): (
            path.stat().st_size, path.stat().st_mtime_ns,
            sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(data.rglob("*"))
    }  # fmt: skip


def flip(file: Path, at: int) -> None:
    """Flip one bit of the byte at `at`."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
