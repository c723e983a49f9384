"""Finds out which store a directory belongs to, before anything in it is changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..errors import ForeignStore
from .disk import NEW, NO_SPACE, Disk, read_front, set_aside
from .header import (
    SEGMENT_HEADER_BYTES,
    STORE_BYTES,
    STORE_NAME,
    SegmentHeader,
    damaged_name,
    decode_segment_header,
    decode_store,
    encode_store,
    segment_name,
    segment_number,
)  # fmt: skip
from .new_versions import replace_file
from .store_keys import KEYS_NAME

logger = logging.getLogger("durable.log")
IGNORED_NAMES = frozenset({"lock", STORE_NAME + NEW, "lost+found"})
"""Names that an otherwise empty directory may contain."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The store that a directory belongs to."""

    store_id: bytes
    formatted: bool
    """There was no store before, so one was made."""
    headers: dict[int, SegmentHeader | None]
    """Headers of all segments, by number; None where one is damaged or not written yet."""


def identify(disk: Disk, *, new_store_id: bytes, now_us: int) -> Identity:
    """Find out which store the directory belongs to; format it if it is empty.

    The store id is taken from any intact copy; if `store` is damaged it is written again, if there is space. If no
    copy is intact, no record can be verified: then everything found is renamed to `damaged.…`, and the store begins
    anew.

    Raises:
        ForeignStore: the directory holds something else, or files of several stores.
        NewerFormat: a later version wrote it.
    """
    names = disk.names()
    headers = {
        number: _read_segment_header(disk, number)
        for number in sorted(filter(None, map(segment_number, names)))
    }
    kept = decode_store(read_front(disk, STORE_NAME, STORE_BYTES)) if STORE_NAME in names else None
    ids = {header.store_id for header in headers.values() if header is not None}
    if kept is not None:
        ids.add(kept)
    if len(ids) > 1:
        raise ForeignStore(
            disk.path, f"it contains files of stores {', '.join(sorted(i.hex() for i in ids))}"
        )
    if not ids:
        headers = _set_aside_all(disk, names, list(headers))
    formatted = not ids
    store_id = new_store_id if formatted else ids.pop()
    if kept is None:
        try:
            replace_file(disk, STORE_NAME, encode_store(store_id, now_us))
        except OSError as error:
            if formatted or error.errno not in NO_SPACE:
                raise
            # A segment has the same id, and a later start that finds space writes the file.
            logger.warning(
                "%s/%s is damaged or missing, and cannot be written: %s",
                disk.path,
                STORE_NAME,
                error,
            )
    return Identity(store_id, formatted, headers)


def _read_segment_header(disk: Disk, number: int) -> SegmentHeader | None:
    name = segment_name(number)
    header = decode_segment_header(read_front(disk, name, SEGMENT_HEADER_BYTES), name)
    return header if header is not None and header.number == number else None


def _set_aside_all(
    disk: Disk, names: list[str], numbers: list[int]
) -> dict[int, SegmentHeader | None]:
    """Set files aside when no store id is left, or there never was one. Return the segments that stay."""
    used = [number for number in numbers if any(read_front(disk, segment_name(number), 1 << 16))]
    if STORE_NAME not in names:
        foreign = [name for name in names if name not in IGNORED_NAMES and not segment_number(name)]
        if foreign or used:
            found = foreign + [segment_name(number) for number in used]
            raise ForeignStore(disk.path, f"it contains {', '.join(found[:5])}")
    else:
        set_aside(disk, STORE_NAME, "damaged.store")
        if KEYS_NAME in names:
            set_aside(disk, KEYS_NAME, "damaged.keys")
    for number in used:
        set_aside(disk, segment_name(number), damaged_name(number, 0))
    return {number: None for number in numbers if number not in used}
