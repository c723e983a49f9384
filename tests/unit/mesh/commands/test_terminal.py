"""What is printed loses nothing, is valid JSON, and cannot steer a terminal."""

from __future__ import annotations

import base64
import json
import math
import signal

import msgpack
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mesh.commands.terminal import jsonable, payload, payload_fields, until_told, words

TIMESTAMP = b"\x81\xa1t\xd6\xff\x00\x00\x00\x01"
"""{"t": one second after 1970}, as msgpack."""


@given(st.binary())
def test_no_payload_is_lossy(data: bytes) -> None:
    row = json.loads(json.dumps(payload_fields(data)))
    assert len(row) == 1
    if "payload" in row:
        assert row["payload"].encode() == data
    else:
        assert base64.b64decode(row["payload_base64"]) == data


def test_any_headers_a_peer_may_send_are_json() -> None:
    sent = {"a": b"\xff", b"k": [1, None, True, 0.5], "n": math.nan}
    headers = msgpack.unpackb(msgpack.packb(sent)) | msgpack.unpackb(TIMESTAMP)
    text = json.dumps(jsonable(headers), allow_nan=False)
    assert json.loads(text)["a"] == {"base64": "/w=="}
    assert json.loads(text)["b'k'"] == [1, None, True, 0.5]
    assert json.loads(text)["n"] == "nan"
    assert json.loads(text)["t"].startswith("Timestamp")


def test_headers_nested_deeper_than_python_recurses_are_cut() -> None:
    value: list[object] = []
    for _ in range(2000):
        value = [value]
    assert json.dumps(jsonable({"a": value})).count("[") < 40


def test_words_are_one_line_that_cannot_steer(capsys: pytest.CaptureFixture[str]) -> None:
    words("a\x1b[2J\nb é")
    assert capsys.readouterr().err == "mesh: a\\x1b[2J\\nb é\n"


def test_an_argument_is_taken_as_its_bytes() -> None:
    assert payload("\udcff") == b"\xff"


async def test_who_is_told_to_end_says_goodbye_undisturbed() -> None:
    before, steps = signal.getsignal(signal.SIGTERM), list[str]()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_told, nursery.cancel_scope)
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()
        signal.raise_signal(signal.SIGTERM)
        steps.append("goodbye")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert steps == ["goodbye"]
