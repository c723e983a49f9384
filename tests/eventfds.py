"""Eventfds that a test makes, without those of threads left over from earlier tests."""

from __future__ import annotations

import os
import threading

import pytest


class Eventfds:
    """Counts the eventfds that this thread makes from now on, and knows which of them are open."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made, self.open = 0, set[int]()
        make, close, thread = os.eventfd, os.close, threading.get_ident()

        def made(value: int, flags: int = 0) -> int:
            descriptor = make(value, flags)
            if threading.get_ident() == thread:
                self.made += 1
                self.open.add(descriptor)
            return descriptor

        def closed(descriptor: int) -> None:
            close(descriptor)
            if threading.get_ident() == thread:
                self.open.discard(descriptor)

        patch.setattr(os, "eventfd", made)
        patch.setattr(os, "close", closed)
