"""SecurityError
├── NoKey                       no secret key of a cluster; the text says how to make one
├── UnsafeKeyFile               a secret file that others than its owner can access
├── BadKeyFile                  a file, or a secret given as text, that cannot be read or parsed
├── KeyChoice                   no source of keys, too many, or keys that contradict each other
├── CannotAnnounce (ValueError) our own fault: no reader would accept what is to be signed
└── BadAnnouncement             abstract, a peer's fault: an announcement that is refused
    ├── Malformed               not an announcement in a version that we read
    ├── Untrusted               signed by no key that this keyring trusts
    ├── Forged                  a signature that does not verify
    ├── Expired                 past its lifetime
    └── Ahead                   issued in the future
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike


class SecurityError(Exception):
    """Root of the errors of this package: keys, and announcements signed with them."""


class NoKey(SecurityError):
    """`directory` is where the key was looked for, if it was looked for in files."""

    def __init__(self, cluster: str, directory: str = "") -> None:
        pair = f"`mesh keys new-cluster {cluster}`"
        if directory:  # Nobody would trust a new pair of a cluster that has one elsewhere.
            text = (
                f"no secret key of cluster {cluster!r} in {directory}: copy {cluster}.secret there from a member, "
                f"or create a pair for a new cluster with {pair}"
            )
        else:
            text = (
                f"no secret key of cluster {cluster!r}: create a network secret with `mesh keys new-network`, "
                f"or a pair for this cluster with {pair}"
            )
        super().__init__(text)
        self.cluster, self.directory = cluster, directory


class UnsafeKeyFile(SecurityError):
    def __init__(self, path: PathLike[str], mode: int) -> None:
        super().__init__(
            f"{path} is accessible to others than its owner (mode {mode:04o}): chmod 600 {path}"
        )
        self.path, self.mode = path, mode


class BadKeyFile(SecurityError):
    """`path` is the file, or the name of the setting that contains the key; `why` says what is wrong with it."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


class KeyChoice(SecurityError):
    """No keys are configured, more than one source of them, or keys that contradict each other."""


class CannotAnnounce(SecurityError, ValueError):
    """An announcement exceeds a limit that every reader enforces, or cannot be signed with the keys given."""


class BadAnnouncement(SecurityError):
    """Abstract: a peer's announcement that is refused. The node counts it and learns nothing from it."""

    def __init__(self, text: str) -> None:
        assert type(self) is not BadAnnouncement, "say which kind"
        super().__init__(text)


class Malformed(BadAnnouncement):
    """The bytes are not an announcement in a version that this node reads."""


class Untrusted(BadAnnouncement):
    """No cluster of the announcement signed it with a key that this keyring trusts for that name."""


class Forged(BadAnnouncement):
    """A signature does not verify with the trusted key that it names."""


class Expired(BadAnnouncement):
    def __init__(self, seconds: float, who: str) -> None:
        by = "by this machine's clock: it is an old one, or one of the two clocks is wrong"
        super().__init__(f"the announcement of {who} expired {seconds:.0f} s ago, {by}")
        self.seconds = seconds


class Ahead(BadAnnouncement):
    def __init__(self, seconds: float, who: str) -> None:
        by = "by this machine's clock: one of the two clocks is wrong"
        super().__init__(
            f"the announcement of {who} was issued {seconds:.0f} s in the future, {by}"
        )
        self.seconds = seconds
