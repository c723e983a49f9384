"""For clients that block to receive: they receive in a thread of their own, as their documentation suggests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from bench.loops.loop import drive

from .system import Received


class Receiving:
    """Threads that pass on what their sources yield, until `end`; errors after that are ignored."""

    def __init__(self) -> None:
        self.ended = False

    def start(self, source: Callable[[], Iterable[Sequence[bytes]]], received: Received) -> None:
        def take() -> None:
            try:
                for payloads in source():
                    drive(received(payloads))
            except Exception:
                if not self.ended:
                    raise

        threading.Thread(target=take, daemon=True).start()

    def end(self) -> None:
        self.ended = True
