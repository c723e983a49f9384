"""Encryption of record bodies, and of checkpoints, under the data key of one store.

    plain       | header | targets | body |                      | zeros |
    encrypted   | header | targets | nonce | ciphertext    | tag | zeros |   flag 1, version 2, of a group 3

The nonce is 32 random bytes, the rest AEGIS-256, so a body takes 64 bytes more. What the body belongs
to is associated with it and decrypts with nothing else: "MREC", store id, u8 kind, u64 time, targets.
Seals stay plain, they are added when records are placed: all they say stands in headers as well.

That hides bodies from who reads the disk. It does not keep who writes there from removing records,
repeating old ones, or adding plain ones; and it hides no sizes, kinds, lanes or times.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from security.at_rest import NONCE_BYTES, decrypt, encrypt

from .record import ENCRYPTED, MAGIC, TARGET, TARGET_BYTES, Draft, Record

MADE_FOR = struct.Struct("<BQ")

RandomBytes = Callable[[int], bytes]


class Cipher:
    """Of one store. Safe in any thread.

    Args:
        data_key: 32 bytes.
        encrypting: whether what is written from now on is encrypted; what is there decrypts anyway.
        random_bytes: so many random bytes.
    """

    def __init__(
        self, data_key: bytes, store_id: bytes, *, encrypting: bool, random_bytes: RandomBytes
    ) -> None:
        self.data_key, self.encrypting = data_key, encrypting
        self._prefix, self._random_bytes = MAGIC + store_id, random_bytes

    def __repr__(self) -> str:
        return f"<Cipher{' that encrypts' if self.encrypting else ''}>"

    def encrypt(self, draft: Draft) -> Draft:
        """The draft as it is to be written. Bodies are copied."""
        packed = b"".join([TARGET.pack(*target) for target in draft.targets])
        made_for = self._made_for(draft.kind, draft.time_us, packed)
        return draft._replace(body=self.encrypt_bytes(bytes(draft.body), made_for), encrypted=True)

    def decrypt(self, record: Record) -> Record | None:
        """The record with its body as it was appended; None: the key, the body or the targets are others."""
        header, contents = record
        if not header.encrypted:
            return record
        start = TARGET_BYTES * header.target_count
        packed = bytes(contents[:start])
        body = contents[start : start + header.body_bytes]
        plain = self.decrypt_bytes(bytes(body), self._made_for(header.kind, header.time_us, packed))
        if plain is None:
            return None
        return Record(
            header._replace(flags=header.flags & ~ENCRYPTED, body_bytes=len(plain)), packed + plain
        )

    def _made_for(self, kind: int, time_us: int, packed_targets: bytes) -> bytes:
        return self._prefix + MADE_FOR.pack(kind, time_us) + packed_targets

    def encrypt_bytes(self, plain: bytes, associated: bytes) -> bytes:
        """Nonce, ciphertext, tag."""
        return encrypt(self.data_key, self._random_bytes(NONCE_BYTES), plain, associated)

    def decrypt_bytes(self, encrypted: bytes, associated: bytes) -> bytes | None:
        return decrypt(self.data_key, encrypted, associated)


def as_written(record: Record) -> Record:
    """In place of `Cipher.decrypt` for whoever compares checksums only; flags say what is encrypted."""
    return record
