"""Systems that store what is published: several messages to a sync, or a mode with a sync for each."""

from __future__ import annotations

from .system import Promise, System

ONE_AT_A_TIME = "-each"
"""Ends the names of systems whose messages have a sync each; most have to send one at a time for that."""
EACH_PROBE_COUNT = 200


class StoredSystem(System):
    """The reply of a request is the confirm of its publish.

    Args:
        promise: of its confirms, where not `each` message is synced.
    """

    promise: Promise
    replies = False

    def __init__(self, name: str, client: str, promise: Promise, *, each: bool) -> None:
        self.name = name + ONE_AT_A_TIME * each
        self.client = client
        self.promise = "fsync each" if each else promise
        self.latency = not each
        self.each = each
        if each:
            self.probe_count = EACH_PROBE_COUNT
