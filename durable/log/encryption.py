"""Whether a store is encrypted and with which key: reads, makes and updates its file `keys`.

    no file `keys`, nothing asked            plain
    no file `keys`, encryption asked         a data key is made, unless something encrypted is found
    file `keys`, a key of the keyring fits   decrypts; encrypts if asked; the file follows the keyring
    file `keys`, none fits, or is damaged    refused, and nothing is changed

The file is on stable storage before anything is written that needs it, and is never replaced by one with
another data key.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from security.at_rest import DATA_KEY_BYTES, WRAP_NONCE_BYTES, unwrap, wrap
from security.keyring import Keyring
from security.keys import ClusterKeys

from ..errors import ForeignStore, StoreKeyMissing, StoreKeyWrong
from .cipher import Cipher, RandomBytes
from .disk import NO_SPACE, Directory, read_front
from .new_versions import replace_file
from .read_only_disk import ReadOnlyDirectory
from .record import Record
from .store_keys import (
    FILE_BYTES,
    KEYS_NAME,
    StoreKeys,
    count_damaged,
    decode_store_keys,
    encode_store_keys,
)

logger = logging.getLogger("durable.log")


@dataclass(frozen=True, slots=True)
class Encryption:
    """What is passed to open a store: the keys, and whether to encrypt."""

    keyring: Keyring | None
    cluster: str | None = None
    """The cluster whose key pairs protect the data key from now on; None: the file `keys` stays as it is."""
    encrypt: bool = False
    """Whether new records are encrypted; needs a cluster."""
    as_written: bool = False
    """Encrypted records are read without decryption, so no key is needed: to verify checksums."""
    random_bytes: RandomBytes = os.urandom

    @property
    def wants_key(self) -> bool:
        """Whether a data key is made for a store that has none."""
        return self.encrypt and self.cluster is not None


def is_encrypted(log: Path) -> bool:
    """Return whether the log in this directory has a data key, so that some of it may be encrypted."""
    return (log / KEYS_NAME).exists()


def encryption_of_copy(log: Path, keyring: Keyring | None) -> Encryption:
    """Return the encryption for a copy of the encrypted log in this directory: for the same cluster.

    Raises:
        StoreKeyMissing, NewerFormat: as `read_cipher`.
    """
    disk = ReadOnlyDirectory(log)
    return Encryption(keyring, _read_keys(disk).cluster, encrypt=True)


def damaged_copies(log: Path) -> int:
    """Return how many of the two copies in the file `keys` are damaged; 0 if there is no file."""
    return count_damaged(_read(ReadOnlyDirectory(log))) if is_encrypted(log) else 0


def read_cipher(disk: Directory, store_id: bytes, encryption: Encryption | None) -> Cipher | None:
    """Return the cipher of a store; None if it has no data key, or is to be read as it was written.

    Raises:
        StoreKeyMissing: it is encrypted and there is no keyring, or the file `keys` is damaged.
        StoreKeyWrong: no key of the keyring fits.
        ForeignStore: the file `keys` belongs to another store.
        NewerFormat: a later version wrote it.
    """
    encryption = encryption or Encryption(None)
    if encryption.as_written or KEYS_NAME not in disk.names():
        return None
    keys = _read_keys(disk)
    if keys.store_id != store_id:
        raise ForeignStore(
            disk.path, f"its file {KEYS_NAME} belongs to store {keys.store_id.hex()}"
        )
    data_key = _unwrapped(disk.path, keys, encryption.keyring)
    return Cipher(
        data_key, store_id, encrypting=encryption.encrypt, random_bytes=encryption.random_bytes
    )


def ensure_cipher(
    disk: Directory, store_id: bytes, cipher: Cipher | None, encryption: Encryption | None
) -> Cipher | None:
    """Make a data key if one is wanted, and update the file `keys` to match the keyring; durable on return.

    To be called after the log was read; after all of it, if a key is to be made: then it is certain that nothing
    in it is encrypted with a key that is gone.

    Raises:
        StoreKeyMissing: there is no secret key to protect the data key with.
    """
    if encryption is None or encryption.cluster is None:
        return cipher
    made = cipher is None
    if cipher is None:
        if not encryption.wants_key:
            return None
        random = encryption.random_bytes
        cipher = Cipher(random(DATA_KEY_BYTES), store_id, encrypting=True, random_bytes=random)
    pairs = _secret_pairs(encryption.keyring, encryption.cluster)
    if not pairs:
        raise StoreKeyMissing(f"none for encrypting {disk.path}: {_key_advice(encryption.cluster)}")
    if not made and _fits(_read(disk), encryption.cluster, pairs):
        return cipher
    wrapped = {
        pair.key_id: wrap(
            cipher.data_key, pair, store_id, encryption.random_bytes(WRAP_NONCE_BYTES)
        )
        for pair in pairs
    }
    try:
        keys = StoreKeys(store_id, encryption.cluster, wrapped)
        replace_file(disk, KEYS_NAME, encode_store_keys(keys))
    except OSError as error:
        if made or error.errno not in NO_SPACE:
            raise
        # The store has to open, so that consumers can free space; the next start tries this again.
        logger.warning("%s: no space to rewrap the data key, so old keys still open it", disk.path)
    return cipher


def cipher_of(
    log: str | Path, keyring: Keyring | None, store_id: bytes | None = None
) -> Cipher | None:
    """Return the cipher of the log in this directory, which may be in use; None if it has no data key.

    Args:
        store_id: of the log; None: the one in its file `keys`. Bodies of another store cannot be decrypted.
    Raises:
        StoreKeyMissing, StoreKeyWrong, ForeignStore, NewerFormat: as `read_cipher`.
    """
    disk = ReadOnlyDirectory(log)
    if KEYS_NAME not in disk.names():
        return None
    if store_id is None:
        store_id = _read_keys(disk).store_id
    return read_cipher(disk, store_id, Encryption(keyring))


def refuse_encrypted(record: Record) -> Record | None:
    """Refuse an encrypted record: in place of `Cipher.decrypt` if there is no data key. An intact record must not be
    taken for damage, whose messages would be settled: it can be read once the file `keys` is restored."""
    what = f"the record at log position {record.position} is encrypted"
    raise StoreKeyMissing(f"{what}, and the file {KEYS_NAME} is gone")


def _read(disk: Directory) -> bytes:
    return read_front(disk, KEYS_NAME, FILE_BYTES)


def _read_keys(disk: Directory) -> StoreKeys:
    keys = decode_store_keys(_read(disk))
    if keys is None:
        raise StoreKeyMissing(
            f"the file {KEYS_NAME} in {disk.path} is damaged; restore it from a backup: all encrypted "
            "data depends on it"
        )
    return keys


def _unwrapped(path: str, keys: StoreKeys, keyring: Keyring | None) -> bytes:
    ids = [one.hex() for one in keys.wrapped]
    if keyring is None:
        raise StoreKeyMissing(
            f"{path} is encrypted for keys {', '.join(ids)}: {_key_advice(keys.cluster)}"
        )
    pairs = _secret_pairs(keyring, keys.cluster)
    for pair in pairs:
        wrapped = keys.wrapped.get(pair.key_id)
        data_key = None if wrapped is None else unwrap(wrapped, pair, keys.store_id)
        if data_key is not None:
            return data_key
    raise StoreKeyWrong(path, keys.cluster, ids, [pair.key_id.hex() for pair in pairs])


def _key_advice(cluster: str) -> str:
    return f"give the network secret (MESH_NETWORK_SECRET_FILE), or the secret key of {cluster!r}"


def _secret_pairs(keyring: Keyring | None, cluster: str) -> list[ClusterKeys]:
    """Return the cluster's trusted pairs with a secret. `Keyring.own` would make this node a member of the cluster,
    and the cluster's name may come from a file."""
    pairs = () if keyring is None else keyring.trusted(cluster)
    return [pair for pair in pairs if pair.secret is not None]


def _fits(data: bytes, cluster: str, pairs: list[ClusterKeys]) -> bool:
    keys = decode_store_keys(data)
    return (
        keys is not None
        and (keys.cluster, list(keys.wrapped)) == (cluster, [pair.key_id for pair in pairs])
        and not count_damaged(data)
    )
