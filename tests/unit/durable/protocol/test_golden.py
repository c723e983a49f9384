"""What clients and brokers say to each other, pinned: a change here is a new version of the protocol."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from durable.broker.publishing import _publisher_state
from durable.errors import Malformed, QueueFull
from durable.protocol.calls import (
    VERSION,
    Answer,
    Call,
    decode_hello,
    encode_answer,
    encode_call,
    encode_hello,
)
from durable.protocol.error_codec import describe_error
from durable.protocol.parts import (
    ACK,
    CURSOR,
    DELIVER,
    HURRY,
    LEAVING,
    REJECT,
    RELEASE,
    REQUEUE,
    SETTLED,
    Gap,
    Refusal,
    Settlement,
    encode_confirm,
    encode_ended,
    encode_gap,
    encode_number,
    encode_settlements,
    encode_slice,
)
from durable.protocol.pieces import in_pieces
from durable.protocol.properties import Properties, encode_properties
from durable.vhost.publishers import Publisher

GOLDEN = Path(__file__).parents[3] / "golden" / f"durable-v{VERSION}.hex"
ID = b"p" * 16
LIFE = b"i" * 16 + bytes([3]) + bytes(7)


def said() -> list[bytes]:
    publisher = Publisher(ID, 1, next=9, floor=2, holes=[(3, 5)], confirmed=7)
    full = QueueFull("jobs", 10, None)
    properties = Properties("orders", priority=3, ttl_us=5, mandatory=True, cc=("a",), bcc=("b",))
    return [
        encode_hello("control", "/"),
        encode_hello(
            "publish", "/", session=b"s" * 16, publisher=ID, epoch=1, oldest=0, stops=True
        ),
        encode_hello("publish", "/", session=b"s" * 16, publisher=ID, epoch=None, oldest=0),
        encode_answer(Answer(0, _publisher_state(publisher))),
        encode_hello(
            "read",
            "/",
            session=b"s" * 16,
            stream="audit",
            cursor="",
            start=7,
            again=True,
            life=LIFE,
        ),
        encode_answer(Answer(0, {"offset": 7, "life": LIFE})),
        encode_call(Call(1, "purge_queue", {"name": "jobs"})),
        encode_answer(Answer(1, 5)),
        encode_answer(Answer(2, None, *describe_error(full))),
        encode_properties(properties),
        encode_settlements([Settlement(ACK, 1, 3)]),
        encode_settlements(
            [Settlement(REQUEUE, 3, 4), Settlement(REJECT, 4, 5), Settlement(RELEASE, 5, 9)]
        ),
        HURRY,
        LEAVING,
        encode_number(CURSOR, 7),
        encode_number(SETTLED, 8),
        encode_confirm(9, [Refusal(5, 2, *describe_error(full))]),
        DELIVER + b"".join(encode_slice(4, 1, b"batch")),
        encode_gap(Gap(6, ID, 1, "t.a", 2, 3)),
        encode_ended(full),
        *in_pieces(4, encode_call(Call(4, "vhosts", {})), 25),
        *in_pieces(3, encode_answer(Answer(3, ["/", "audit"])), 25),
    ]


def test_what_is_said() -> None:
    assert said() == list(map(bytes.fromhex, GOLDEN.read_text().split()))


@pytest.mark.parametrize("version", [1, VERSION + 1, None, "2", "v" * 10_000])
def test_a_hello_of_another_version_is_told_both(version: object) -> None:
    hello = msgpack.packb({"v": version, "kind": "control", "vhost": "/"})
    with pytest.raises(
        Malformed, match=f"hello of version .*, and this broker speaks {VERSION}"
    ) as told:
        decode_hello(hello)
    assert repr(version)[:50] in str(told.value)
    assert len(str(told.value)) < 300
