from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.hello import (
    ANNOUNCEMENTS_MAX,
    Hello,
    Limits,
    Proof,
    Welcome,
    decode_announcements,
    decode_hello,
    decode_welcome,
    encode_announcements,
)
from mesh.protocol.values import BODY_BYTES_MAX, TEXT_BYTES_MAX, clip, decode_values, encode_values
from tests.machines import ME, OTHER

LIMITS = Limits(window=1 << 22, frame_max=1 << 18, record_max=1 << 24, reassembly_max=1 << 26)
HELLO = Hello(
    lane=1, node=ME, target=OTHER, link_id=b"k" * 16, resume=True, expects=7,
    limits=LIMITS, announcement=b"signed", idempotent=("shop/get", "shop/put"),
)  # fmt: skip
WELCOME = Welcome(
    lane=0, node=ME, link_id=b"k" * 16, expects=1, limits=LIMITS,
    announcement=b"",
)  # fmt: skip


def test_greetings_come_back_as_they_were() -> None:
    assert decode_hello(HELLO.encode()) == HELLO
    assert decode_welcome(WELCOME.encode()) == WELCOME
    assert decode_announcements(encode_announcements([b"a", b"", b"b"])) == [b"a", b"", b"b"]
    assert decode_values(encode_values("x", 2, True), "X", (str, int, bool)) == ["x", 2, True]


def test_fields_of_later_versions_are_ignored() -> None:
    """They come behind all that there may be today."""
    proof = Proof("x", ((b"k" * 8, b"s" * 64),))
    hello, welcome = replace(HELLO, proof=proof), replace(WELCOME, proof=proof)
    fields = msgpack.unpackb(hello.encode())
    assert decode_hello(msgpack.packb([*fields, {"new": 1}, 2])) == hello
    fields = msgpack.unpackb(welcome.encode())
    assert decode_welcome(msgpack.packb([*fields, None])) == welcome


LIMIT_NAMES = ("window", "frame_max", "record_max", "reassembly_max")
HELLO_LIMITS: list[dict[str, Any]] = [
    {"lane": 2}, {"lane": -1}, {"node": b"m" * 15}, {"target": b"o" * 17}, {"link_id": b""},
    {"expects": 0}, {"expects": -1}, *({"limits": replace(LIMITS, **{name: 0})} for name in LIMIT_NAMES),
    {"idempotent": ("x",) * 257}, {"idempotent": (b"x",)},
]  # fmt: skip
WELCOME_LIMITS = [limits for limits in HELLO_LIMITS if "target" not in limits]


@pytest.mark.parametrize("changes", HELLO_LIMITS, ids=str)
def test_a_hello_out_of_its_limits_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid field"):
        decode_hello(replace(HELLO, **changes).encode())


@pytest.mark.parametrize("changes", WELCOME_LIMITS, ids=str)
def test_a_welcome_out_of_its_limits_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid field"):
        decode_welcome(replace(WELCOME, **changes).encode())


WRONG: dict[type, list[Any]] = {
    int: [True, 1.0, "1", None, b"1"], bytes: ["text", None, 1, [b"x"]], bool: [0, 1, None],
    list: ["x", None, {}, 1],
}  # fmt: skip


@pytest.mark.parametrize("greeting", [HELLO, WELCOME], ids=["hello", "welcome"])
def test_every_field_of_another_type_is_refused(greeting: Hello | Welcome) -> None:
    decode: Callable[[bytes], object] = decode_hello if greeting is HELLO else decode_welcome
    values = msgpack.unpackb(greeting.encode())
    for at, value in enumerate(values):
        for wrong in WRONG[type(value)]:
            changed = [*values[:at], wrong, *values[at + 1 :]]
            with pytest.raises(RemoteProtocolError, match="invalid field"):
                decode(msgpack.packb(changed))


def test_a_missing_field_is_refused() -> None:
    fields = msgpack.unpackb(HELLO.encode())
    with pytest.raises(RemoteProtocolError, match="invalid field"):
        decode_hello(msgpack.packb(fields[:-1]))


BOMBS = {
    "nested arrays": b"\x91" * 5000,
    "nested maps": b"\x81\x01" * 5000,
    "an array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "a map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "a string of 4 GiB": b"\xdb\xff\xff\xff\xff",
    "bytes of 4 GiB": b"\xc6\xff\xff\xff\xff",
    "an extension": b"\x91\xc7\x01\x05x",
    "a time": b"\x91\xd6\xff\x00\x00\x00\x01",
    "1025 elements": b"\xdc\x04\x01" + b"\xc0" * 1025,
    "a map key that is no key": b"\x91\x81\x90\x01",
    "text that is no text": b"\x91\xa1\xff",
    "a byte msgpack never uses": b"\x91\xc1",
    "nothing": b"",
    "half": HELLO.encode()[:20],
    "more than all": HELLO.encode() + b"\x01",
    "a map": b"\x80",
    "too much": msgpack.packb([b"x" * 8000] * 30),
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize(
    "decode",
    [decode_hello, decode_welcome, decode_announcements, lambda body: decode_values(body, "X", ())],
    ids=["hello", "welcome", "announcements", "values"],
)
def test_bombs_are_refused(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(body)


def test_the_limit_of_a_body_is_exact() -> None:
    half = msgpack.packb([b"x" * 8000] * 24)
    filler = BODY_BYTES_MAX - len(half) - 3
    exact = msgpack.packb([b"x" * 8000] * 24 + [b"x" * filler])
    assert len(exact) == BODY_BYTES_MAX
    assert len(decode_announcements(exact)) == 25
    with pytest.raises(RemoteProtocolError, match="the limit is"):
        decode_announcements(msgpack.packb([b"x" * 8000] * 24 + [b"x" * (filler + 1)]))


def test_announcements_are_few_and_bytes() -> None:
    many = [b"a"] * ANNOUNCEMENTS_MAX
    assert decode_announcements(encode_announcements(many)) == many
    for wrong in ([*many, b"a"], [b"a", "text"], [b"a", None]):
        with pytest.raises(RemoteProtocolError, match="invalid field"):
            decode_announcements(msgpack.packb(wrong))


@pytest.mark.parametrize("text", ["", "plain", "x" * 9000, "\N{SNOWMAN}" * 3000, "\udc80 lone"])
def test_clipped_text_always_arrives(text: str) -> None:
    """Goal: what a handler raises must not cost the link (or the node) it is reported by."""
    (arrived,) = decode_values(encode_values(clip(text)), "ERROR", (str,))
    readable = text.replace("\udc80", "?")
    assert readable.startswith(arrived)
    assert arrived == readable or len(arrived.encode()) > TEXT_BYTES_MAX - 4
