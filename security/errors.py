"""SecurityError
├── NoKey                 no key of a cluster; the text says how to make one
├── UnsafeKeyFile         a secret that others can read
├── BadKeyFile            a file, or a secret, that does not parse
├── KeyChoice             no source of keys, or more than one
└── BadAnnouncement       abstract: a claim that is not believed
    ├── Malformed         not an announcement at all
    ├── Untrusted         of no cluster this keyring knows
    ├── Forged            a signature that does not verify
    └── Expired           its lifetime is over
"""

from __future__ import annotations

from pathlib import Path


class SecurityError(Exception):
    """Root of what can be wrong with keys and with those who claim to hold them."""


class NoKey(SecurityError):
    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"no secret key of cluster {cluster!r}: make one network secret with "
            f"`mesh keys new-network`, or a pair for this cluster with "
            f"`mesh keys new-cluster {cluster}`"
        )
        self.cluster = cluster


class UnsafeKeyFile(SecurityError):
    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(f"{path} can be read by others (mode {mode:04o}): chmod 600 {path}")
        self.path, self.mode = path, mode


class BadKeyFile(SecurityError):
    def __init__(self, what: object, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.why = why


class KeyChoice(SecurityError):
    """Which keys to use is not said, or said twice."""


class BadAnnouncement(SecurityError):
    """Abstract; it is counted, and never changes what is known."""


class Malformed(BadAnnouncement):
    """The bytes are no announcement of a version this node reads."""


class Untrusted(BadAnnouncement):
    """None of its clusters has a key that this keyring trusts."""


class Forged(BadAnnouncement):
    """It names a key this keyring knows, and that key did not sign it."""


class Expired(BadAnnouncement):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"expired {seconds:.0f} s ago")
        self.seconds = seconds
