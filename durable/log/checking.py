"""Whether many records are intact, by one checksum over dozens of them.

    | header | rest | header | rest | header | rest | 0 |      the records as they are
    | 0 |  0 ... A | 0 .. B |  0 ... A | 0 .. C |  0 ... A | 0 .. D |      the same length, mostly zeros

CRC-32 is linear: a record's contribution to the checksum of all follows from its own two checksums, wherever
it is. The checksum of its rest is in its header, and the checksum over its header is the same for all records
of a store (series.py). So the second row has numbers where headers and records end (here A and B, C, D), and
zeros between them. If all records are intact, both rows have the same checksum. CRC-32 of a megabyte at once is
ten times as fast as of the records in it one by one.

Few enough bytes are checked at once that everything is found that the records' own checksums are sure to find:
any one changed bit, and any three changed bits behind the headers. Other damage passes once in 2^32, either way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from .checksum import crc32
from .record import HEADER_BYTES, Buffer

PART_BYTES = 8192
"""CRC-32 finds any three changed bits in up to 11 KiB."""
NUMBER_BYTES = 4
_HEADER_LAST = HEADER_BYTES // NUMBER_BYTES - 1
_ZEROS = bytes(NUMBER_BYTES)
"""Put in front of the second row. CRC-32 combines a number with its state at the number's first byte. With the row
shifted by these bytes, the number in the last place of a header or record acts exactly where that ends."""
_ZEROS_CHECKSUM = crc32(_ZEROS)
_ALL = (1 << 8 * NUMBER_BYTES) - 1
Part = tuple[int, int, Buffer]
"""(start, end, expected): bytes [start, end) of the records, and the second row for them."""


def all_intact(data: memoryview, ends: range | Sequence[int], checksums: array[int]) -> bool:
    """Return whether these records are intact.

    Args:
        data: the records, back to back; the header of the first one must be valid.
        ends: the end of each record in `data`, in bytes.
        checksums: for each record the checksum of all behind its header, as the header has it.
    """
    header = data[:HEADER_BYTES]
    header_checksum = crc32(header) ^ crc32(bytes(HEADER_BYTES)) ^ _ALL
    if isinstance(ends, range) and ends.step > HEADER_BYTES:
        parts = _parts_of_one_size(ends.step, header_checksum, _inverted(checksums))
    else:
        parts = _parts(ends, header_checksum, _inverted(checksums))
    return all(
        crc32(_ZEROS, crc32(data[start:end])) == crc32(expected, _ZEROS_CHECKSUM)
        for start, end, expected in parts
    )


def _parts_of_one_size(
    size_bytes: int, header_checksum: int, rest_checksums: array[int]
) -> Iterator[Part]:
    step, together = size_bytes // NUMBER_BYTES, max(1, PART_BYTES // size_bytes)
    expected = memoryview(bytearray(size_bytes * together))
    numbers = expected.cast("I")
    numbers[_HEADER_LAST::step] = array("I", [header_checksum]) * together
    for first in range(0, len(rest_checksums), together):
        some = rest_checksums[first : first + together]
        numbers[step - 1 : step * len(some) : step] = some
        start, length = size_bytes * first, size_bytes * len(some)
        yield start, start + length, expected[:length]


def _parts(ends: Sequence[int], header_checksum: int, rest_checksums: array[int]) -> Iterator[Part]:
    begin = which = 0
    while which < len(ends):
        behind = max(which + 1, bisect_right(ends, begin + PART_BYTES, which))
        expected = memoryview(bytearray(ends[behind - 1] - begin))
        numbers, at = expected.cast("I"), 0
        for end, rest in zip(ends[which:behind], rest_checksums[which:behind], strict=True):
            numbers[at + _HEADER_LAST] = header_checksum
            at = (end - begin) // NUMBER_BYTES
            # XOR: if a record is nothing but a header, both numbers are in the same place.
            numbers[at - 1] ^= rest
        yield begin, ends[behind - 1], expected
        begin, which = ends[behind - 1], behind


def _inverted(column: array[int]) -> array[int]:
    """Return the column with every bit of each number inverted."""
    length = len(column) * NUMBER_BYTES
    bits = int.from_bytes(column.tobytes(), "little") ^ ((1 << 8 * length) - 1)
    return array("I", bits.to_bytes(length, "little"))
