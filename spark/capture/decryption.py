"""The data key of a log that is encrypted at rest: looked for when the first encrypted record is met.

options ─> settings in force (options, MESH_*, mesh.toml of this process) ─> keyring ─> data key

So a log that is not encrypted needs no keys, and costs nothing. Driver and workers each do this for
themselves: what is sent from one to the other names files, and contains no key.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from durable.errors import StoreKeyMissing
from durable.log.cipher import Cipher
from durable.log.encryption import cipher_of, is_encrypted
from durable.log.record import Record
from mesh.errors import ConfigError
from mesh.settings import key_source
from security.errors import SecurityError
from security.files import load_keyring
from security.keyring import Keyring

from ..errors import KeysUnusable


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Where the keys are, as settings of a node. If both are None, MESH_* or mesh.toml tell."""

    network_secret_file: Path | None = None
    keys_dir: Path | None = None


DEFAULT_KEY_FILES = KeyFiles()


class Decryption:
    """Decrypts the records of one log; to be used in one thread.

    Args:
        store_id: of the log; if None, it is not known here, and taken from the log's file `keys`.
    """

    def __init__(
        self, log: Path, files: KeyFiles = DEFAULT_KEY_FILES, store_id: bytes | None = None
    ) -> None:
        self._log, self._files, self._store_id = log, files, store_id
        self._cipher: Cipher | None = None

    def cipher(self) -> Cipher | None:
        """Return the log's cipher; None if nothing in the log is encrypted.

        Raises:
            StoreKeyMissing: no keys are set, or the log's file `keys` is damaged.
            StoreKeyWrong: none of the keys that are set fits.
            KeysUnusable: what is set is not a valid key.
            ForeignStore: the log's file `keys` belongs to another store.
        """
        if self._cipher is None and is_encrypted(self._log):
            self._cipher = cipher_of(self._log, self._keyring(), self._store_id)
        return self._cipher

    def decrypt(self, record: Record) -> Record | None:
        """Return the record with its body as it was appended; None if it is damaged. Raises as `cipher`."""
        if not record.header.encrypted:
            return record
        cipher = self.cipher()
        if cipher is None:
            raise StoreKeyMissing(
                f"the record at log position {record.position} of {self._log} is encrypted, and "
                "the log has no data key"
            )
        return cipher.decrypt(record)

    def _keyring(self) -> Keyring | None:
        """Return the configured keys; None if none are set."""
        try:
            source, _ = key_source(asdict(self._files))
            return load_keyring(**source) if source else None
        except (ConfigError, SecurityError, OSError) as error:
            raise KeysUnusable(str(self._log), str(error)) from None
