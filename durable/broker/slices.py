"""Slices of batches on their way to one consumer or reader: small ones share a part, large ones are divided."""

from __future__ import annotations

from typing import NamedTuple

from mesh.protocol.batch import Batch
from mesh.protocol.frame import Buffer

from ..errors import ConsumerCancelled
from ..protocol.parts import DELIVER, SLICE_BYTES, encode_slice

PART_BYTES = 256 * 1024
"""Small slices share a part of up to this size."""


class Part(NamedTuple):
    data: bytes
    end: int
    """The tag or offset after its last message."""


class Slices:
    """Builds the parts for one tunnel. `full` has the parts to which the next slice cannot be added."""

    def __init__(self, source: str, part_bytes_max: int) -> None:
        """
        Args:
            source: name of the queue or stream.
            part_bytes_max: largest part that the tunnel takes.
        """
        self._source, self._slice_bytes_max = source, part_bytes_max - len(DELIVER)
        self._part_bytes = min(PART_BYTES, self._slice_bytes_max)
        self.full: list[Part] = []
        self._pieces: list[Buffer] = [DELIVER]
        self._size_bytes = self._end = 0

    def add(self, tag: int, returned: int, batch: Batch) -> None:
        """Add all messages of a batch, of which the first has this tag or offset.

        Raises:
            ConsumerCancelled: a single message is more than the tunnel takes.
        """
        size_bytes = SLICE_BYTES + batch.size_bytes
        if size_bytes > self._slice_bytes_max:
            self._add_halves(tag, returned, batch)
            return
        if self._size_bytes and self._size_bytes + size_bytes > self._part_bytes:
            self._finish()
        self._pieces += encode_slice(tag, returned, batch.view())
        self._size_bytes += size_bytes
        self._end = tag + batch.count
        if self._size_bytes >= self._part_bytes:
            self._finish()

    def _add_halves(self, tag: int, returned: int, batch: Batch) -> None:
        if batch.count == 1:
            raise ConsumerCancelled(
                self._source,
                f"a message of {batch.size_bytes} bytes is more than the consumer's tunnel takes, "
                f"{self._slice_bytes_max - SLICE_BYTES}: the lesser of its window and of "
                "payload_bytes_max of its node",
            )
        front, back = batch.halves()
        self.add(tag, returned, front)
        self.add(tag + front.count, returned, back)

    def _finish(self) -> None:
        self.full.append(Part(b"".join(self._pieces), self._end))
        self._pieces, self._size_bytes = [DELIVER], 0

    def take(self) -> list[Part]:
        """Return the parts to be sent now: the full ones, or, if there are none, what has gathered."""
        if not self.full and self._size_bytes:
            self._finish()
        parts, self.full = self.full, []
        return parts
