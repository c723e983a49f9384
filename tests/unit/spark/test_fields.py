"""A field of many headers is what the log reads of each."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from durable.log.record import HEADER_BYTES, WHOLE_HEADER, Header
from spark.capture.fields import field

SIZES = dict(zip(Header._fields, (4, 1, 1, 2, *[4] * 6, *[8] * 3, 4, 4), strict=True))
headers = st.builds(
    Header,
    **{
        name: st.binary(min_size=4, max_size=4)
        if name == "magic"
        else st.integers(0, 2 ** (8 * size - 1) - 1)
        for name, size in SIZES.items()
    },
)


@given(st.lists(headers, min_size=1, max_size=4), st.integers(0, 7), st.sampled_from(list(SIZES)))
def test_each_field_is_that_of_each_header(found: list[Header], gap: int, name: str) -> None:
    data = b"".join(WHOLE_HEADER.pack(*one) + bytes(gap) for one in found)
    at = np.arange(len(found)) * (HEADER_BYTES + gap)
    read = field(np.frombuffer(data, np.uint8), at, name).tolist()
    expected = [getattr(one, name) for one in found]
    assert read == [one.rstrip(b"\0") if isinstance(one, bytes) else one for one in expected]
