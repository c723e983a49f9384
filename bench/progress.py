"""Progress of a run: a line when a measurement begins; on a terminal, one line that is kept up to date."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

TICK_S = 1.0
CLEAR = "\r\x1b[K"


class Progress:
    """Writes all progress output to `stream`: other writers would write into the line that is kept up to date."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._terminal = stream.isatty()
        self._began_s = clock()
        self._line: tuple[str, float] | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if self._terminal:
            threading.Thread(target=self._tick, daemon=True).start()

    def begin(self, words: str) -> None:
        """Show that a run begins. `words` describe it and how long it may take."""
        now_s = self._clock()
        words = f"after {minutes(now_s - self._began_s)}: {words}"
        with self._lock:
            if self._terminal:
                self._line = (words, now_s)
                self._draw()
            else:
                self._write(f"{words}\n")

    def say(self, words: str) -> None:
        """Write a line that stays, and remove the line of the run that `begin` announced."""
        with self._lock:
            self._clear()
            self._write(f"{words}\n")

    def end(self) -> None:
        """Stop updating the line and remove it."""
        self._ended.set()
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._line:
            self._line = None
            self._write(CLEAR)

    def _draw(self) -> None:
        if self._line:
            words, began_s = self._line
            words = f"{words}, {self._clock() - began_s:.0f} s until now"
            self._write(CLEAR + words[: shutil.get_terminal_size().columns - 1])

    def _tick(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                self._draw()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
