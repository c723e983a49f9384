"""Whose store a directory is: found out before anything in it is changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..errors import ForeignStore
from .disk import NEW, NO_SPACE, Disk, read_front, replace_file
from .header import (
    SEGMENT_HEADER_BYTES,
    STORE_BYTES,
    STORE_NAME,
    SegmentHeader,
    damaged_name,
    decode_segment_header,
    decode_store,
    encode_store,
    names_after,
    segment_name,
    segment_number,
)  # fmt: skip
from .store_keys import KEYS_NAME

logger = logging.getLogger("durable.log")
NOT_STRANGE = frozenset({"lock", STORE_NAME + NEW, "lost+found"})
"""Names an otherwise empty directory may have in it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The store in a directory."""

    store_id: bytes
    formatted: bool
    """There was none before."""
    headers: dict[int, SegmentHeader | None]
    """Of all segments; None where it is damaged or not written yet."""


def identify(disk: Disk, *, new_store_id: bytes, now_us: int) -> Identity:
    """Find out whose store the directory is; format it when it is empty.

    The store id is taken from wherever it is intact; where `store` is not, it is written again, if there
    is space. Only when it is nowhere any more, no record can be verified: then all there is is set aside
    under names `damaged.…`, and the store begins anew.

    Raises:
        ForeignStore: something else is in there, or files of several stores.
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
        raise ForeignStore(disk.path, f"files of stores {', '.join(sorted(i.hex() for i in ids))}")
    if not ids:
        headers = _make_room(disk, names, list(headers))
    formatted = not ids
    store_id = new_store_id if formatted else ids.pop()
    if kept is None:
        try:
            replace_file(disk, STORE_NAME, encode_store(store_id, now_us))
        except OSError as error:
            if formatted or error.errno not in NO_SPACE:
                raise
            # A segment says the same, and a start that finds space writes it.
            logger.warning(
                "%s/%s is damaged or missing, and stays so: %s", disk.path, STORE_NAME, error
            )
    return Identity(store_id, formatted, headers)


def _read_segment_header(disk: Disk, number: int) -> SegmentHeader | None:
    name = segment_name(number)
    header = decode_segment_header(read_front(disk, name, SEGMENT_HEADER_BYTES), name)
    return header if header is not None and header.number == number else None


def _make_room(disk: Disk, names: list[str], numbers: list[int]) -> dict[int, SegmentHeader | None]:
    """No store id is left, or there never was one. Returns the segments that stay."""
    used = [number for number in numbers if any(read_front(disk, segment_name(number), 1 << 16))]
    if STORE_NAME not in names:
        strange = [name for name in names if name not in NOT_STRANGE and not segment_number(name)]
        if strange or used:
            found = strange + [segment_name(number) for number in used]
            raise ForeignStore(disk.path, f"it holds {', '.join(found[:5])}")
    else:
        set_aside(disk, STORE_NAME, "damaged.store")
        if KEYS_NAME in names:
            set_aside(disk, KEYS_NAME, "damaged.keys")
    for number in used:
        set_aside(disk, segment_name(number), damaged_name(number, 0))
    return {number: None for number in numbers if number not in used}


def set_aside(disk: Disk, name: str, aside: str) -> None:
    """What is there from an earlier time stays: it is the only copy."""
    names = disk.names()
    disk.rename(name, next(one for one in names_after(aside) if one not in names))
