"""Announcements: whose claims count, and each field that is refused."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from security.announcement import SIZE_BYTES_MAX, Announcement, Endpoint, read_announcement
from security.errors import Ahead, CannotAnnounce, Expired, Forged, Malformed, NoKey, Untrusted
from security.keyring import FileKeyring, NetworkKeyring
from security.keys import ClusterKeys, derive, generate

SECRET, OLD = bytes(range(32)), bytes(32)
NOW_US = 10**15
ID = derive(SECRET, "a").key_id
MINE, THEIRS = generate("a", b"m" * 64), generate("b", b"t" * 64)
GOLDEN = Path(__file__).parents[2] / "golden/announcement-v2.hex"


def make(clusters: tuple[str, ...] = ("a",), **changes: object) -> Announcement:
    fields: dict[str, object] = {
        "node": bytes(16), "incarnation": 5, "issued_us": NOW_US, "lifetime_s": 600,
        "host": bytes(8), "clusters": clusters, "endpoints": (), **changes,
    }  # fmt: skip
    return Announcement(**fields)  # type: ignore[arg-type]


def read(raw: bytes, ring: FileKeyring | NetworkKeyring, **options: int) -> Announcement:
    return read_announcement(raw, ring, **{"now_us": NOW_US, **options})


def assembled(statement: Any, signatures: bytes | None = None) -> bytes:
    """Signed properly by cluster `a` of SECRET, whatever it says; packed by hand."""
    body = msgpack.packb(statement)
    signed = b"\x02" + len(body).to_bytes(2, "little") + body
    return signed + (derive(SECRET, "a").sign(signed) if signatures is None else signatures)


def statement(at: int | None = None, value: object = None) -> list[Any]:
    signers = [["a", ID]]
    fields: list[Any] = [bytes(16), 5, NOW_US, 600, bytes(8), signers, [["tcp://h:1", bytes(8)]], False]  # fmt: skip
    if at is not None:
        fields[at] = value
    return fields


def test_the_bytes_are_as_specified() -> None:
    """Against the specification itself: nothing of the writer is used but the golden bytes."""
    data = bytes.fromhex(GOLDEN.read_text())
    assert data[0] == 2
    end = 3 + int.from_bytes(data[1:3], "little")
    pair = derive(SECRET, "databases")
    node, incarnation, issued_us, lifetime_s, host, *rest = msgpack.unpackb(data[3:end])
    assert (node, incarnation, issued_us, lifetime_s) == (bytes(range(16)), 1, 2, 600)
    assert host == b"hosthost"
    endpoints = [["tcp://10.0.0.5:7400", pair.key_id]]
    assert rest == [[["databases", pair.key_id]], endpoints, False]
    assert len(data) == end + 64
    assert pair.verifies(data[:end], data[end:])


def test_what_was_assembled_by_hand_is_read() -> None:
    """Or the refusals below would prove nothing."""
    got = read(assembled(statement()), NetworkKeyring([SECRET]))
    assert got == make(endpoints=(Endpoint("tcp://h:1", bytes(8)),))


def test_version_and_expiry() -> None:
    announcement = make()
    assert announcement.version < make(issued_us=NOW_US + 1).version
    assert make(issued_us=NOW_US + 1).version < make(incarnation=6, issued_us=0).version
    assert announcement.expires_us == NOW_US + 600_000_000


def test_only_proven_clusters_count_in_their_order() -> None:
    raw = make(("a", "b")).sign([MINE, THEIRS])
    assert read(raw, FileKeyring([MINE.public_half()])).clusters == ("a",)
    assert read(raw, FileKeyring([THEIRS.public_half()])).clusters == ("b",)
    assert read(raw, FileKeyring([THEIRS, MINE])).clusters == ("a", "b")
    reverse = make(("b", "a")).sign([MINE, THEIRS])
    assert read(reverse, FileKeyring([MINE, THEIRS])).clusters == ("b", "a")


@pytest.mark.parametrize(
    "keys", [[], [MINE], [MINE, THEIRS], [MINE, THEIRS, generate("c", b"c" * 64)]]
)
def test_who_signs_is_what_is_claimed(keys: list[ClusterKeys]) -> None:
    with pytest.raises(CannotAnnounce, match="not the same"):
        make(("b", "d")).sign(keys)


def test_nobody_can_take_a_cluster_away() -> None:
    """Leaving out a signature, or its signer, leaves nothing that verifies."""
    raw = make(("a", "b")).sign([MINE, THEIRS])
    ring = FileKeyring([MINE, THEIRS])
    with pytest.raises(Malformed, match="signatures"):
        read(raw[:-64], ring)
    end = 3 + int.from_bytes(raw[1:3], "little")
    fields = msgpack.unpackb(raw[3:end])
    del fields[5][1]
    with pytest.raises(Forged):
        read(assembled(fields, raw[end : end + 64]), ring)


def test_a_key_speaks_only_for_its_own_cluster() -> None:
    ring = FileKeyring([MINE, THEIRS])
    renamed = ClusterKeys("b", MINE.public, MINE.verify, MINE.secret, MINE.seed)
    with pytest.raises(Untrusted):
        read(make(("b",)).sign([renamed]), ring)


def test_keys_nobody_knows() -> None:
    nowhere = make(("b",))
    raw = replace(nowhere, endpoints=(Endpoint("tcp://10.0.0.5:5600", bytes(8)),)).sign([THEIRS])
    who = f"node {nowhere.node.hex()[:8]} at tcp://10.0.0.5:5600, which claims to be of cluster b"
    with pytest.raises(Untrusted, match=f"^{who}, has no key trusted here$"):
        read(raw, FileKeyring([MINE]))
    with pytest.raises(
        Untrusted, match=r"^node [0-9a-f]{8}, which claims to be of cluster b, has no key"
    ):
        read(nowhere.sign([THEIRS]), FileKeyring([MINE]))
    with pytest.raises(Untrusted):
        read(raw, NetworkKeyring([SECRET]))


@pytest.mark.parametrize("known", [[SECRET], [OLD], [SECRET, OLD], [b"n" * 32, OLD]])
def test_any_generation_will_do(known: list[bytes]) -> None:
    raw = make().sign([derive(SECRET, "a"), derive(OLD, "a")])
    assert read(raw, NetworkKeyring(known)).clusters == ("a",)


def test_a_wrong_signature_by_a_known_key_is_forged() -> None:
    pair = derive(SECRET, "a")
    raw = bytearray(make().sign([pair]))
    raw[-1] ^= 1
    ring = NetworkKeyring([SECRET])
    with pytest.raises(Forged):
        read(bytes(raw), ring)
    assert ring.admit(pair.public) is None, "nothing was learned from it"


@pytest.mark.parametrize("order", [1, -1])
def test_one_forged_signature_spoils_the_good_ones(order: int) -> None:
    pairs = [MINE, THEIRS][::order]
    body = assembled(statement(5, [[pair.cluster, pair.key_id] for pair in pairs]), b"")
    signed = {"a": MINE.sign(body), "b": THEIRS.sign(b"something else")}
    raw = body + b"".join(signed[pair.cluster] for pair in pairs)
    with pytest.raises(Forged, match="'b'"):
        read(raw, FileKeyring([MINE, THEIRS]))
    assert read(raw, FileKeyring([MINE])).clusters == ("a",), "who does not know b cannot tell"


def test_expiry_and_skew() -> None:
    raw, ring = make().sign([derive(SECRET, "a")]), NetworkKeyring([SECRET])
    end_us = NOW_US + 600 * 10**6
    assert read(raw, ring, now_us=end_us + 300 * 10**6)
    with pytest.raises(Expired, match="of a expired 301 s ago, by this machine's clock") as late:
        read(raw, ring, now_us=end_us + 301 * 10**6)
    assert late.value.seconds == pytest.approx(301)
    with pytest.raises(Expired):
        read(raw, ring, now_us=end_us + 1, skew_s=0)
    assert read(raw, ring, now_us=NOW_US - 300 * 10**6)
    with pytest.raises(
        Ahead, match="of a was issued 301 s in the future, by this machine's"
    ) as early:
        read(raw, ring, now_us=NOW_US - 301 * 10**6)
    assert early.value.seconds == pytest.approx(301)
    with pytest.raises(Ahead):
        read(raw, ring, now_us=NOW_US - 300 * 10**6 - 1)


def test_learned_only_from_success() -> None:
    pairs = [derive(SECRET, name) for name in ("a", "b")]
    ring = NetworkKeyring([SECRET])
    with pytest.raises(Expired):
        read(make(("a", "b")).sign(pairs), ring, now_us=2 * NOW_US)
    with pytest.raises(Ahead):
        read(make(("a", "b")).sign(pairs), ring, now_us=0)
    assert [ring.admit(pair.public) for pair in pairs] == [None, None]
    read(make(("a", "b")).sign(pairs), ring)
    assert [ring.admit(pair.public) for pair in pairs] == ["a", "b"]


IMPOSSIBLE = [
    (0, b"short"), (0, "sixteen letters!"), (1, -1), (1, 1.0), (1, True), (1, None), (2, -1),
    (2, "now"), (3, 0), (3, -5), (3, 7 * 86400 + 1), (3, True), (4, b""), (4, bytes(9)), (5, []),
    (5, "a"), (5, None), (5, {}), (5, ["a"]), (5, [[]]), (5, [["a"]]), (5, [["a", ID, 1]]),
    (5, [["a", ID]] * 2), (5, [["a", ID], ["B", ID]]), (5, [["a", ID], ["@door", ID]]),
    (5, [["", ID]]), (5, [["-b", ID]]), (5, [["b\n", ID]]), (5, [["x" * 64, ID]]),
    (5, [["a", ID[:7]]]), (5, [["a", "12345678"]]), (5, [[b"a", ID]]),
    (5, [[f"a{n}", ID] for n in range(17)]),
    (5, [["a", n.to_bytes(8, "little")] for n in range(33)]),
    (6, None), (6, ["tcp://h:1"]), (6, [["tcp://h:1"]]), (6, [["tcp://h:1", bytes(7)]]),
    (6, [["tcp://h:1", bytes(8), 1]]), (6, [["tcp://h:1", bytes(8)]] * 65), (7, 0), (7, None),
]  # fmt: skip
URIS = [
    "", "tcp://", "h:1", "tcp://h", "tcp://h:", "tcp://:1", "tcp://h:0", "tcp://h:65536",
    "tcp://h:123456", "tcp://h:1-2", "tcp://h:+1", "tcp://*:1", "tcp://h:1\n", "tcp://h:1/x",
    "ipc:///tmp/x", "inproc://x", "tcp://a b:1", "tcp://a;b:1", "tcp://[::1:1", "tcp://::1:1",
    "tcp://h:\u0661", "tcp://\u00e4:1", "TCP://h:1", "tcp://h@x:1", f"tcp://{'h' * 254}:1",
]  # fmt: skip


@pytest.mark.parametrize(("at", "value"), IMPOSSIBLE)
def test_impossible_fields_are_refused_even_when_signed(at: int, value: object) -> None:
    signers = value if at == 5 and isinstance(value, list | str) else [None]
    raw = assembled(statement(at, value), b"")
    with pytest.raises(Malformed, match=r"^(?!.*signatures)"):
        read(raw + derive(SECRET, "a").sign(raw) * len(signers), NetworkKeyring([SECRET]))


@pytest.mark.parametrize("uri", URIS)
def test_an_endpoint_is_tcp_host_and_port(uri: str) -> None:
    with pytest.raises(Malformed, match=r"tcp://host:port|msgpack"):
        read(assembled(statement(6, [[uri, bytes(8)]])), NetworkKeyring([SECRET]))


@pytest.mark.parametrize("uri", ["tcp://10.0.0.5:1", "tcp://[fe80::1]:65535", "tcp://db_1.example.org:7400"])  # fmt: skip
def test_endpoints_that_are_fine(uri: str) -> None:
    got = read(assembled(statement(6, [[uri, bytes(8)]])), NetworkKeyring([SECRET]))
    assert got.endpoints == (Endpoint(uri, bytes(8)),)


@pytest.mark.parametrize("value", [None, {}, [], statement()[:7], [*statement(), 1], "text", 5])
def test_a_statement_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        read(assembled(value), NetworkKeyring([SECRET]))


@pytest.mark.parametrize("size", [0, 1, 63, 65, 127, 128])
def test_there_are_as_many_signatures_as_signers(size: int) -> None:
    with pytest.raises(Malformed, match="signatures"):
        read(assembled(statement(), bytes(size)), NetworkKeyring([SECRET]))


def test_what_stands_before_and_behind_is_refused() -> None:
    raw, ring = assembled(statement()), NetworkKeyring([SECRET])
    with pytest.raises(Malformed, match="version 1"):
        read(b"\x01" + raw[1:], ring)
    with pytest.raises(Malformed, match="signatures"):
        read(raw + b"\xc0", ring)
    with pytest.raises(Malformed, match="bytes"):
        read(b"", ring)


def test_the_size_is_checked_before_anything_is_parsed() -> None:
    ring = NetworkKeyring([SECRET])
    with pytest.raises(Malformed, match="at most 4096"):
        read(b"\x02" + bytes(SIZE_BYTES_MAX), ring)
    with pytest.raises(Malformed, match=r"^(?!.*at most 4096)"):
        read(b"\x02" + bytes(SIZE_BYTES_MAX - 1), ring)


BOMBS = {
    "deep": b"\x91" * 4000,
    "deeper, wide headers": b"\xdd\x00\x00\x00\x01" * 800,
    "deep maps": b"\x81\x01" * 2000,
    "long array": b"\xdd\xff\xff\xff\xff",
    "long map": b"\xdf\xff\xff\xff\xff",
    "long str": b"\xdb\xff\xff\xff\xff",
    "long bin": b"\xc6\xff\xff\xff\xff",
    "long ext": b"\xc9\xff\xff\xff\xff\x01",
    "many": b"\x9f" * 4000 + b"\xc0" * 90,
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "reserved": b"\xc1",
    "bad utf-8": b"\xa2\xff\xff",
    "a list as a map's key": b"\x81\x90\x01",
    "whole array": b"\xdc\x0f\x00" + b"\xc0" * 0xF00,
    "whole map": b"\xde\x05\x00" + b"\xa1a\xc0" * 0x500,
    "whole str": b"\xda\x0f\x00" + b"a" * 0xF00,
    "whole bin": b"\xc5\x0f\x00" + b"a" * 0xF00,
    "whole ext": b"\xc8\x0f\x00\x01" + b"a" * 0xF00,
}
"""Refused by msgpack's own limits; the whole ones would be made if theirs were not given."""


class Untouched(NetworkKeyring):
    """No key is looked up, and none derived, for what is refused by its form."""

    def trusted(self, cluster: str) -> Any:
        raise AssertionError(f"keys of {cluster!r} were looked up")


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_before_anything_is_made_of_it(
    bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a statement msgpack makes nothing of it; as signatures it never gets to msgpack."""
    valid = assembled(statement())
    signed = valid[: 3 + int.from_bytes(valid[1:3], "little")]
    made: list[Any] = []
    unpack = msgpack.unpackb

    def unpackb(data: bytes, **limits: Any) -> Any:
        made.append(unpack(data, **limits))
        return made[-1]

    monkeypatch.setattr(msgpack, "unpackb", unpackb)
    ring = Untouched([SECRET])
    tracemalloc.start()
    try:
        for raw in (b"\x02" + len(bomb).to_bytes(2, "little") + bomb, signed + bomb):
            with pytest.raises(Malformed):
                read(raw[:SIZE_BYTES_MAX], ring)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made == [statement()]
    assert peak_bytes < 1 << 20, "room for what a header promised"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"clusters": ()}, "not the same"),
        ({"clusters": tuple(f"a{n}" for n in range(17))}, "clusters"),
        ({"lifetime_s": 8 * 86400}, "lifetime"),
        ({"endpoints": (Endpoint("tcp://*:1", bytes(8)),)}, "tcp://host:port"),
        ({"endpoints": (Endpoint("tcp://h:1", bytes(8)),) * 65}, "endpoints|msgpack"),
        ({"endpoints": (Endpoint(f"tcp://{'h' * 200}:1", bytes(8)),) * 18}, "bytes"),
        ({"endpoints": (Endpoint(f"tcp://{'h' * 200}:1", bytes(8)),) * 64}, "bytes"),
    ],
)
def test_nobody_signs_what_nobody_reads(changes: dict[str, object], says: str) -> None:
    """It used to be said, and refused by every peer without a word to its author."""
    announcement = make(**changes)  # type: ignore[arg-type]
    keys = [derive(SECRET, name) for name in announcement.clusters or ["a"]]
    with pytest.raises(CannotAnnounce, match=says):
        announcement.sign(keys)


def test_signing_needs_secrets() -> None:
    with pytest.raises(NoKey):
        make().sign([MINE.public_half()])
