"""What msgpack raises of bytes that it did not make."""

from __future__ import annotations

import msgpack

UNPACK_ERRORS = (ValueError, TypeError, RecursionError, msgpack.UnpackException)
"""To be caught around `unpackb`, and around what takes apart the values that it gave."""
