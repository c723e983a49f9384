"""One checksum, whoever counts it: what one installation wrote another must read."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from durable.log.checksum import crc32

ROOT = Path(__file__).parents[4]
WITHOUT = """
import sys
sys.modules["zlib_ng"] = None
from durable.log.checksum import crc32
print(crc32(b"123456789"))
"""


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1), st.integers(0, 5000))
def test_it_is_that_of_zlib_in_one_piece_and_in_two(data: bytes, seed: int, cut: int) -> None:
    assert crc32(data, seed) == zlib.crc32(data, seed)
    assert crc32(memoryview(data)[cut:], crc32(data[:cut], seed)) == zlib.crc32(data, seed)


def test_zlib_counts_where_zlib_ng_is_not_installed() -> None:
    """0xcbf43926 is the check value of CRC-32 in every list of them."""
    command = [sys.executable, "-c", WITHOUT]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert int(found.stdout) == crc32(b"123456789") == 0xCBF43926
