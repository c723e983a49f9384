"""Errors of discovery. Faults of the network do not raise: a finder's `problem()` reports them.

DiscoveryError
    ├── BadEndpoint (ValueError)            text that is not `tcp://host:port`; raised at construction
    ├── AnnouncementTooLarge (ValueError)   does not fit into one multicast packet
    └── ResponderError                      zeroconf does not work here now; handled inside discovery
"""

from __future__ import annotations


class DiscoveryError(Exception):
    """Root of the errors of this package."""


class BadEndpoint(DiscoveryError, ValueError):
    """`text` is not `scheme://host:port`; `reason` says what is wrong with it."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text!r} is not an endpoint: {reason}")
        self.text, self.reason = text, reason


class AnnouncementTooLarge(DiscoveryError, ValueError):
    """An announcement of `size_bytes` was refused; nothing was published."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"announcement of {size_bytes} bytes exceeds the limit of {limit_bytes} bytes"
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class ResponderError(DiscoveryError):
    """Multicast does not work here, and the text says why; `MdnsFinder` shows it as its problem and retries."""
