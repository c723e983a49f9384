"""Systems that store messages: with one sync for several messages, or in a mode with one for each."""

from __future__ import annotations

from .system import Promise, System

ONE_AT_A_TIME = "-each"
"""Ends the names of systems that sync each message by itself; most have to send one at a time for that."""
EACH_PROBE_COUNT = 200


class StoredSystem(System):
    """A system in which the reply of a request is the confirm of its publish.

    Args:
        promise: what a confirm promises unless `each`.
        each: whether each message is synced by itself.
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
