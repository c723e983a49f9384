"""Limits the number of lists and maps in msgpack from others.

An empty list takes one byte in msgpack and 64 as an object: 64 KiB of compressed definitions could become 4 GiB.
"""

from __future__ import annotations

from typing import Any

import msgpack

BYTES_PER_CONTAINER, CONTAINERS_MIN = 8, 1 << 17
"""So many containers are always allowed, which is 8 MiB of empty ones; beyond that one for each so many bytes. What we
send has fewer, because its containers hold names."""


def unpack(packed: bytes) -> Any:
    """Return the value that `packed` holds. Raises what `security.unpacking.UNPACK_ERRORS` names, also of too many
    lists and maps."""
    # Fewer bytes than containers allowed: no need to count. Most are short, and this is once per message.
    limits = unpack_limits(len(packed)) if len(packed) > CONTAINERS_MIN else {}
    return msgpack.unpackb(packed, **limits)


def unpack_limits(size_bytes: int) -> dict[str, Any]:
    """Return keyword arguments for an unpacker of `size_bytes`; it raises ValueError if there are too many in them."""
    left = CONTAINERS_MIN + size_bytes // BYTES_PER_CONTAINER

    def count_one(container: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("more lists and maps than its bytes can hold")
        return container

    return {"list_hook": count_one, "object_hook": count_one}
