"""Found: 64 KiB of compressed lists became 5 GB, of a cluster that might configure anything at all."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack
import pytest

from durable.definition_forms import export_definitions
from durable.definitions import BindingDefinition, Definitions
from durable.errors import Malformed
from durable.protocol.calls import Call, decode_call, encode_call
from durable.protocol.containers import BYTES_PER_CONTAINER, CONTAINERS_MIN, unpack_limits
from durable.protocol.definition_bytes import pack_definitions, unpack_definitions
from durable.protocol.properties import Properties, decode_properties
from durable.routing.router import Router
from durable.vhost.routes import routed
from tests.vhosts import make_batch

TOO_MANY = "more lists and maps than its bytes can hold"
JUNK: list[Any] = [[]] * 200_000


@pytest.mark.parametrize("plain", [{"queues": JUNK}, {"queues": {"a": JUNK}}, JUNK], ids=len)
def test_definitions_of_lists_in_which_nothing_is_are_none(plain: Any) -> None:
    with pytest.raises(Malformed, match=TOO_MANY):
        unpack_definitions(zlib.compress(msgpack.packb(plain)))


def test_so_are_calls_and_properties() -> None:
    with pytest.raises(Malformed, match=TOO_MANY):
        decode_call(encode_call(Call(1, "bind", {"definition": {"arguments": JUNK}})))
    with pytest.raises(Malformed):
        decode_properties(msgpack.packb({"x": "exchange", "z": JUNK}))


def test_so_are_headers_by_which_an_exchange_decides() -> None:
    """Found: 4 MiB of them became 260 MB, for anybody who might publish, and seconds in which nothing was confirmed."""
    router = Router()
    empty_maps: list[Any] = [{}] * 200_000
    for headers in ({"a": JUNK}, {"a": empty_maps}):
        batch = make_batch(0, [b"x"], exchange="amq.headers", headers=[msgpack.packb(headers)])
        with pytest.raises(Malformed, match="headers that are not msgpack"):
            routed(router, batch, Properties("amq.headers"))
    many = msgpack.packb({"a": [[]] * 100_000})
    batch = make_batch(0, [b"x"], exchange="amq.headers", headers=[many])
    assert [one.names for one in routed(router, batch, Properties("amq.headers"))] == [()]


def test_maps_count_as_lists_do_and_few_are_always_taken() -> None:
    empties: tuple[Any, Any] = ({}, [])
    for empty in empties:
        packed = msgpack.packb([empty] * (CONTAINERS_MIN - 1))
        assert msgpack.unpackb(packed, **unpack_limits(0))
        with pytest.raises(ValueError, match=TOO_MANY):
            msgpack.unpackb(msgpack.packb([empty] * CONTAINERS_MIN), **unpack_limits(0))
        assert msgpack.unpackb(packed, **unpack_limits(BYTES_PER_CONTAINER)) == [empty] * (
            CONTAINERS_MIN - 1
        )


def test_bindings_with_as_many_arguments_as_there_may_be_are_taken() -> None:
    """They are what has most lists for its length."""
    arguments = tuple(sorted((f"{number:x}", number) for number in range(1000)))
    bindings = tuple(
        BindingDefinition(exchange="e", destination=f"{number}", arguments=arguments)
        for number in range(50)
    )
    plain = export_definitions(Definitions(bindings=bindings), "/")
    assert unpack_definitions(pack_definitions(plain)) == plain
