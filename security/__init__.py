"""Keys, who may use them, and signed announcements. Imports nothing from the mesh.

Names are loaded when first used: whoever needs a keyring loads neither msgpack nor the key files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .announcement import Announcement as Announcement
    from .announcement import Endpoint as Endpoint
    from .announcement import read_announcement as read_announcement
    from .errors import Ahead as Ahead
    from .errors import BadAnnouncement as BadAnnouncement
    from .errors import BadKeyFile as BadKeyFile
    from .errors import CannotAnnounce as CannotAnnounce
    from .errors import Expired as Expired
    from .errors import Forged as Forged
    from .errors import KeyChoice as KeyChoice
    from .errors import Malformed as Malformed
    from .errors import NoKey as NoKey
    from .errors import SecurityError as SecurityError
    from .errors import UnsafeKeyFile as UnsafeKeyFile
    from .errors import Untrusted as Untrusted
    from .files import load_keyring as load_keyring
    from .keyring import FileKeyring as FileKeyring
    from .keyring import Keyring as Keyring
    from .keyring import NetworkKeyring as NetworkKeyring
    from .keys import DOOR as DOOR
    from .keys import ClusterKeys as ClusterKeys
    from .keys import derive as derive
    from .keys import generate as generate

_NAMES = {
    "announcement": ("Announcement", "Endpoint", "read_announcement"),
    "errors": (
        "Ahead", "BadAnnouncement", "BadKeyFile", "CannotAnnounce", "Expired", "Forged",
        "KeyChoice", "Malformed", "NoKey", "SecurityError", "UnsafeKeyFile", "Untrusted",
    ),
    "files": ("load_keyring",),
    "keyring": ("FileKeyring", "Keyring", "NetworkKeyring"),
    "keys": ("DOOR", "ClusterKeys", "derive", "generate"),
}  # fmt: skip
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'security' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
