"""Hellos, calls and their answers: one msgpack value per part; long ones go in pieces, see pieces.py.

    hello     {"v": 6, "kind": ..., "vhost": ..., further fields of the kind}     first part of every tunnel
    call      [number, operation, {arguments}]                                    on control tunnels
    answer    [number, 0, result] or [number, 1, error code, {its details}]       number 0 answers the hello

The version covers everything in these tunnels, parts.py included; `tests/golden/durable-v6.hex` pins it.
A hello of another version is answered with an `ended` that every release can read: Malformed, with both
versions in its text.

Everything from the other end is checked here; anything invalid raises `Malformed`, which ends the tunnel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgpack

from mesh.errors import TooLarge
from security.unpacking import UNPACK_ERRORS

from ..errors import Malformed, shown
from .containers import unpack

T = TypeVar("T")
VERSION = 6
HELLO_BYTES_MAX, HELLO_FIELDS_MAX = 16 * 1024, 64
"""Limits of a hello, which has some names and numbers."""
CALL_BYTES_MAX = 16 << 20
"""Limit of a call in all its pieces: more than 100,000 queues need to be declared, compressed."""
ANSWER_BYTES_MAX = 128 << 20
"""Limit of an answer in all its pieces: 300,000 queues with the longest possible names."""
CONTROL, PUBLISH, CONSUME, READ = "control", "publish", "consume", "read"


class Hello(NamedTuple):
    kind: str
    vhost: str
    fields: dict[str, Any]

    def stripped(self) -> Hello:
        """Return the hello as it is kept while its tunnel lasts: lists and dicts are emptied, because no field is
        one, and decoded they may take 70 times their length. Raises Malformed if there are too many fields."""
        if len(self.fields) > HELLO_FIELDS_MAX:
            raise Malformed(f"a hello of {len(self.fields)} fields, at most {HELLO_FIELDS_MAX}")
        plain = {
            name: type(one)() if isinstance(one, list | dict) else one
            for name, one in self.fields.items()
        }
        return self._replace(fields=plain)

    def field(self, name: str, kind: type[T], default: Any = ...) -> T:
        """Return a field of this type, or `default` if it is absent. Raises Malformed if it is missing or wrong."""
        value = self.fields.get(name, default)
        if value is ...:
            raise Malformed(f"a hello without {name}")
        if value is default:
            return value  # type: ignore[no-any-return]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Malformed(f"a hello whose {name} is {type(value).__name__}, not {kind.__name__}")
        return value


def greeting_field(greeting: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field of the broker's answer to a hello. Raises Malformed if it is absent or of another type."""
    value = greeting.get(name)
    if not isinstance(value, kind):
        raise Malformed(f"a greeting whose {name} is {type(value).__name__}, not {kind.__name__}")
    return value


class Call(NamedTuple):
    number: int
    operation: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    number: int
    result: Any = None
    error: str = ""
    details: Mapping[str, Any] = {}


def encode_hello(kind: str, vhost: str, **fields: Any) -> bytes:
    packed: bytes = msgpack.packb({"v": VERSION, "kind": kind, "vhost": vhost, **fields})
    return packed


def decode_hello(part: bytes) -> Hello:
    """Raises Malformed."""
    if len(part) > HELLO_BYTES_MAX:
        raise Malformed(f"a hello of {len(part)} bytes, at most {HELLO_BYTES_MAX}")
    value = _unpack(part, dict)
    version, kind, vhost = value.pop("v", None), value.pop("kind", None), value.pop("vhost", None)
    if version != VERSION:
        theirs = f"a hello of version {shown(version)}"
        raise Malformed(
            f"{theirs}, and this broker speaks {VERSION}: run the same release at both ends"
        )
    if not isinstance(kind, str) or not isinstance(vhost, str):
        raise Malformed("a hello without kind or vhost")
    return Hello(kind, vhost, value)


def encode_call(call: Call) -> bytes:
    """Encode a call. Raises TooLarge beyond CALL_BYTES_MAX: the broker would end the connection for it."""
    packed: bytes = msgpack.packb(tuple(call))
    if len(packed) > CALL_BYTES_MAX:
        raise TooLarge(call.operation, len(packed), CALL_BYTES_MAX)
    return packed


def decode_call(whole: bytes) -> Call:
    """Raises Malformed."""
    value = _unpack(whole, list)
    if len(value) != 3:
        raise Malformed(f"a call of {len(value)} fields")
    number, operation, arguments = value
    if type(number) is not int or number < 1:
        raise Malformed("a call without a number")
    if not isinstance(operation, str) or not isinstance(arguments, dict):
        raise Malformed("a call without operation or arguments")
    return Call(number, operation, arguments)


def encode_answer(answer: Answer) -> bytes:
    """Encode an answer. Raises TooLarge beyond ANSWER_BYTES_MAX, which no client accepts."""
    fields = (
        (answer.number, 1, answer.error, dict(answer.details))
        if answer.error
        else (answer.number, 0, answer.result)
    )
    packed: bytes = msgpack.packb(fields)
    if len(packed) > ANSWER_BYTES_MAX:
        raise TooLarge("an answer", len(packed), ANSWER_BYTES_MAX)
    return packed


def decode_answer(whole: bytes) -> Answer:
    """Raises Malformed."""
    value = _unpack(whole, list)
    if len(value) == 3 and value[1] == 0 and type(value[0]) is int:
        return Answer(value[0], value[2])
    if len(value) == 4 and value[1] == 1 and type(value[0]) is int:
        number, _, error, details = value
        if isinstance(error, str) and error and isinstance(details, dict):
            return Answer(number, None, error, details)
    raise Malformed("an invalid answer")


def _unpack(data: bytes, kind: type) -> Any:
    try:
        value = unpack(data)
    except UNPACK_ERRORS as error:
        raise Malformed(f"not msgpack: {error}") from None
    if not isinstance(value, kind):
        raise Malformed(f"{type(value).__name__} instead of {kind.__name__}")
    return value
