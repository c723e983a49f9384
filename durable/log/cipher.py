"""Encryption of record bodies, and of checkpoints, under the data key of one store.

    plain       | header | targets | body |                      | zeros |
    encrypted   | header | targets | nonce | ciphertext    | tag | zeros |   flag 1, version 2, of a group 3

The nonce is 32 random bytes, the rest AEGIS-256, so a body takes 64 bytes more. The ciphertext is bound to its
record by associated data, and decrypts with nothing else: "MREC", store id, u8 kind, u64 time, targets.
Seals are not encrypted, because they are added when records are placed; all they say is in headers as well.

Encryption hides bodies from anybody who can read the disk. It does not prevent somebody who can write to the disk
from removing records, repeating old ones, or adding plain ones; and it does not hide sizes, kinds, lanes or times.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from security.at_rest import NONCE_BYTES, OVERHEAD_BYTES, decrypt, encrypt

from .record import ENCRYPTED, MAGIC, TARGET, TARGET_BYTES, Draft, Record

ASSOCIATED = struct.Struct("<BQ")

RandomBytes = Callable[[int], bytes]


class Cipher:
    """Encrypts and decrypts for one store. Safe in any thread.

    Args:
        data_key: 32 bytes.
        encrypting: whether new records are encrypted; existing ones can be decrypted in either case.
        random_bytes: returns random bytes, as many as it is asked for.
    """

    def __init__(
        self, data_key: bytes, store_id: bytes, *, encrypting: bool, random_bytes: RandomBytes
    ) -> None:
        self.data_key, self.encrypting = data_key, encrypting
        self._prefix, self._random_bytes = MAGIC + store_id, random_bytes

    def __repr__(self) -> str:
        return f"<Cipher{' that encrypts' if self.encrypting else ''}>"

    @property
    def growth_bytes(self) -> int:
        """By how much each new record gets longer."""
        return OVERHEAD_BYTES if self.encrypting else 0

    def encrypt(self, draft: Draft) -> Draft:
        """Return the draft with an encrypted body. The body is copied."""
        packed = b"".join([TARGET.pack(*target) for target in draft.targets])
        associated = self._associated_data(draft.kind, draft.time_us, packed)
        return draft._replace(
            body=self.encrypt_bytes(bytes(draft.body), associated), encrypted=True
        )

    def decrypt(self, record: Record) -> Record | None:
        """Return the record with its body as appended; None if key, body or targets are not those of its encryption."""
        header, contents = record
        if not header.encrypted:
            return record
        start = TARGET_BYTES * header.target_count
        packed = bytes(contents[:start])
        body = contents[start : start + header.body_bytes]
        plain = self.decrypt_bytes(
            bytes(body), self._associated_data(header.kind, header.time_us, packed)
        )
        if plain is None:
            return None
        return Record(
            header._replace(flags=header.flags & ~ENCRYPTED, body_bytes=len(plain)), packed + plain
        )

    def _associated_data(self, kind: int, time_us: int, packed_targets: bytes) -> bytes:
        return self._prefix + ASSOCIATED.pack(kind, time_us) + packed_targets

    def encrypt_bytes(self, plain: bytes, associated: bytes) -> bytes:
        """Return nonce, ciphertext and tag."""
        return encrypt(self.data_key, self._random_bytes(NONCE_BYTES), plain, associated)

    def decrypt_bytes(self, encrypted: bytes, associated: bytes) -> bytes | None:
        return decrypt(self.data_key, encrypted, associated)


def as_written(record: Record) -> Record:
    """Return the record as it is: in place of `Cipher.decrypt`, for callers that only compare checksums."""
    return record
