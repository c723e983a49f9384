"""Measures the cost of one step, repeated by itself: CPU time of all threads of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial

import zmq
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)

from bench.roles.stage import Stage, play
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.log.cipher import Cipher
from durable.log.record import HEADER_BYTES as RECORD_HEADER_BYTES
from durable.log.record import Draft, Kind, Record, encode_record, read_header
from durable.vhost import changes
from durable.vhost.publishers import Publishers
from durable.vhost.registry import Registry
from durable.vhost.snapshot import Snapshot
from security.announcement import Announcement, Endpoint, read_announcement
from security.at_rest import DATA_KEY_BYTES, NONCE_BYTES, encrypt
from security.keyring import NetworkKeyring
from security.keys import generate

Step = Callable[[], object]
SECRET = bytes(32)
ANSWER_MS_MAX = 10_000
NOW_US = 1_800_000_000_000_000
QUEUES = 10_000
CHUNK_BYTES = 64 << 10


def announcement() -> Step:
    """Verify an announcement of a peer with one cluster and one endpoint, as any other node does."""
    keyring = NetworkKeyring([SECRET])
    keys = keyring.own("databases")
    said = Announcement(
        node=bytes(16), incarnation=1, issued_us=NOW_US, lifetime_s=180, host=bytes(8),
        clusters=("databases",), endpoints=(Endpoint("tcp://127.0.0.1:5600", keys[0].key_id),),
    ).sign(keys)  # fmt: skip
    return partial(read_announcement, said, keyring, now_us=NOW_US)


@contextmanager
def handshake() -> Iterator[Step]:
    """Both ends of a connection with CURVE: connecting, a first message, and closing."""
    server, client = (generate("bench", os.urandom(64)) for _ in range(2))
    assert server.secret is not None
    assert client.secret is not None
    with zmq.Context() as context, closing(context.socket(zmq.ROUTER)) as door:
        door.curve_server, door.curve_secretkey = True, server.secret
        door.rcvtimeo = ANSWER_MS_MAX
        port = door.bind_to_random_port("tcp://127.0.0.1")

        def step() -> None:
            with context.socket(zmq.DEALER) as dialler:
                dialler.linger = 0
                dialler.curve_serverkey = server.public
                dialler.curve_publickey, dialler.curve_secretkey = client.public, client.secret
                dialler.connect(f"tcp://127.0.0.1:{port}")
                dialler.send(b"")
                door.recv_multipart()

        yield step


def encrypting(size_bytes: int) -> Step:
    cipher, draft = _cipher(), Draft(Kind.DEFINITIONS, bytes(size_bytes), (), NOW_US)
    return partial(cipher.encrypt, draft)


def decrypting(size_bytes: int) -> Step:
    cipher = _cipher()
    draft = cipher.encrypt(Draft(Kind.DEFINITIONS, bytes(size_bytes), (), NOW_US))
    pieces, _ = encode_record(draft, seed=0, epoch=1, position=0, chain=0, unsynced=0)
    data = b"".join(pieces)
    header = read_header(data, 0, 0)
    assert header is not None
    return partial(cipher.decrypt, Record(header, data[RECORD_HEADER_BYTES:]))


def _cipher() -> Cipher:
    return Cipher(bytes(DATA_KEY_BYTES), bytes(16), encrypting=True, random_bytes=os.urandom)


def aegis_256() -> Step:
    return partial(encrypt, bytes(DATA_KEY_BYTES), bytes(NONCE_BYTES), bytes(CHUNK_BYTES), b"")


def xchacha20_poly1305() -> Step:
    key = bytes(crypto_aead_xchacha20poly1305_ietf_KEYBYTES)
    nonce = bytes(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
    plain = bytes(CHUNK_BYTES)
    return partial(crypto_aead_xchacha20poly1305_ietf_encrypt, plain, b"", nonce, key)


def queues_snapshot() -> Step:
    """Make the snapshot that a vhost writes of QUEUES empty queues."""
    registry = Registry()
    for number in range(QUEUES):
        queue = QueueDefinition(name=f"queue.{number}")
        registry.apply([changes.QUEUE, [number + 1], to_plain(queue)])

    def snapshot() -> list[Draft]:
        made = Snapshot(registry, Publishers(1), 0)
        for _ in made.steps():
            pass
        return made.drafts(NOW_US)

    return snapshot


STEPS: dict[str, Callable[[], AbstractContextManager[Step]]] = {
    "announcement": lambda: nullcontext(announcement()),
    "handshake": handshake,
    "encrypt": lambda: nullcontext(encrypting(100)),
    "decrypt": lambda: nullcontext(decrypting(100)),
    "encrypt_batch": lambda: nullcontext(encrypting(512 << 10)),
    "aegis_256": lambda: nullcontext(aegis_256()),
    "xchacha20_poly1305": lambda: nullcontext(xchacha20_poly1305()),
    "queues_snapshot": lambda: nullcontext(queues_snapshot()),
}


def run(stage: Stage) -> None:
    # As in a node: once a block this large has been freed, malloc keeps memory that large steps would otherwise get
    # from the kernel anew each time.
    del_me = bytes(8 << 20)
    del del_me
    with STEPS[stage.settings["step"]]() as step:
        step()
        stage.ready()
        for order in stage.orders():
            began_ns = time.process_time_ns()
            for _ in range(order["count"]):
                step()
            stage.done(cpu_ns=time.process_time_ns() - began_ns)


if __name__ == "__main__":
    play(run)
