"""SecurityError
├── NoKey                       no key of a cluster; the text says how to make one
├── UnsafeKeyFile               a secret that others can reach
├── BadKeyFile                  a file, or a secret, that does not parse
├── KeyChoice                   no source of keys, too many, or keys that contradict each other
├── CannotAnnounce (ValueError) our own fault: nobody could read what is to be signed
└── BadAnnouncement             abstract, a peer's fault: a claim that is not believed
    ├── Malformed               not an announcement at all
    ├── Untrusted               signed by no key this keyring knows
    ├── Forged                  a signature that does not verify
    ├── Expired                 its lifetime is over
    └── Ahead                   it is of a time yet to come
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


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
    def __init__(self, path: PathLike[str], mode: int) -> None:
        super().__init__(
            f"{path} is open to others than its owner (mode {mode:04o}): chmod 600 {path}"
        )
        self.path, self.mode = path, mode


class BadKeyFile(SecurityError):
    """`path` is a file, or the name of the setting that holds the text."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


class KeyChoice(SecurityError):
    """Which keys to use is not said, said twice, or said in contradiction."""


class CannotAnnounce(SecurityError, ValueError):
    """What a node is to say of itself exceeds a limit that every reader enforces."""


class BadAnnouncement(SecurityError):
    """Abstract; it is counted, and never changes what is known."""

    def __init__(self, text: str) -> None:
        assert type(self) is not BadAnnouncement, "say which kind"
        super().__init__(text)


class Malformed(BadAnnouncement):
    """The bytes are no announcement of a version this node reads."""


class Untrusted(BadAnnouncement):
    """None of its clusters has signed with a key that this keyring trusts for that name."""


class Forged(BadAnnouncement):
    """It names a key this keyring knows, and that key did not sign it."""


class Expired(BadAnnouncement):
    def __init__(self, seconds: float, who: str) -> None:
        by = "by this machine's clock: it is old, or one of the two clocks is wrong"
        super().__init__(f"that of {who} expired {seconds:.0f} s ago, {by}")
        self.seconds = seconds


class Ahead(BadAnnouncement):
    def __init__(self, seconds: float, who: str) -> None:
        by = "by this machine's clock: one of the two clocks is wrong"
        super().__init__(f"that of {who} was issued {seconds:.0f} s from now, {by}")
        self.seconds = seconds
