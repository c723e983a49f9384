"""Goal: an announcement comes back as it was signed, or is refused with a BadAnnouncement.

Oracle for alterations: the original. Whatever is done to the bytes, what is returned equals it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from security.announcement import Announcement, Endpoint, read_announcement
from security.errors import BadAnnouncement, Malformed, Untrusted
from security.keyring import FileKeyring, Keyring, NetworkKeyring
from security.keys import derive

SECRETS = [bytes(range(32)), bytes(32)]
STRANGER = b"a secret of some other network.."
NAMES = ["a", "db", "web-1", "x.y_z", "0" * 63]
PAIRS = {name: [derive(secret, name) for secret in SECRETS] for name in NAMES}
ALIENS = {name: [derive(STRANGER, name)] for name in NAMES}

u64 = st.integers(0, 2**64 - 1)
key_ids = st.binary(min_size=8, max_size=8)
hosts = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.from_regex(r"[a-z0-9_][a-zA-Z0-9_.-]{0,20}", fullmatch=True),
)
endpoints = st.builds(
    lambda host, port, key_id: Endpoint(f"tcp://{host}:{port}", key_id),
    hosts, st.integers(1, 65535), key_ids,
)  # fmt: skip
announcements = st.builds(
    Announcement,
    node=st.binary(min_size=16, max_size=16),
    incarnation=u64,
    issued_us=u64,
    lifetime_s=st.integers(1, 7 * 86400),
    host=key_ids,
    clusters=st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple),
    endpoints=st.lists(endpoints, max_size=20).map(tuple),
    left=st.booleans(),
)
generations = st.sampled_from([[0], [1], [0, 1], [1, 0]])


def network() -> NetworkKeyring:
    return NetworkKeyring(SECRETS)


def sign(announcement: Announcement, which: list[int]) -> bytes:
    return announcement.sign([PAIRS[name][n] for name in announcement.clusters for n in which])


@given(announcements, generations, st.integers(-300 * 10**6, 300 * 10**6))
def test_round_trip(announcement: Announcement, which: list[int], clock_us: int) -> None:
    raw = sign(announcement, which)
    now_us = announcement.issued_us + clock_us
    ring = network()
    assert read_announcement(raw, ring, now_us=now_us) == announcement
    for name in announcement.clusters:
        assert all(ring.admit(pair.public) == name for pair in PAIRS[name])


@given(announcements, st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_clusters_are_those_claimed_signed_and_trusted(
    announcement: Announcement, signing: set[str], trusted: set[str]
) -> None:
    """Of keys known for a name, and not of others: the rest sign with a stranger's keys."""
    keys = [(PAIRS if name in signing else ALIENS)[name][0] for name in announcement.clusters]
    raw = announcement.sign(keys)
    ring = FileKeyring([PAIRS[name][0].public_half() for name in trusted])
    proven = tuple(name for name in announcement.clusters if name in signing and name in trusted)
    if proven:
        got = read_announcement(raw, ring, now_us=announcement.issued_us)
        assert got == replace(announcement, clusters=proven)
    else:
        with pytest.raises(Untrusted):
            read_announcement(raw, ring, now_us=announcement.issued_us)


def check_altered(raw: bytes, original: Announcement, ring: Keyring) -> None:
    try:
        got = read_announcement(raw, ring, now_us=original.issued_us)
    except BadAnnouncement:
        return
    assert got == original


@given(announcements, generations, st.data())
def test_altered_bytes_change_nothing_that_was_signed(
    announcement: Announcement, which: list[int], data: st.DataObject
) -> None:
    raw = bytearray(sign(announcement, which))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
    check_altered(bytes(raw), announcement, network())


ORIGINAL = Announcement(
    node=bytes(range(16)), incarnation=7, issued_us=10**15, lifetime_s=600, host=b"hosthost",
    clusters=("a", "db"), endpoints=(Endpoint("tcp://10.0.0.5:7400", b"k" * 8),),
)  # fmt: skip


def test_every_single_flipped_bit() -> None:
    """All of them, in statement and signatures: refused by whoever knows the keys."""
    raw = sign(ORIGINAL, [0])
    for at in range(len(raw)):
        for bit in range(8):
            flipped = raw[:at] + bytes((raw[at] ^ 1 << bit,)) + raw[at + 1 :]
            with pytest.raises(BadAnnouncement):
                read_announcement(flipped, network(), now_us=10**15)


def test_every_truncation_and_extension() -> None:
    raw = sign(ORIGINAL, [0, 1])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            read_announcement(raw[:size], network(), now_us=10**15)
    for byte in range(256):
        with pytest.raises(Malformed):
            read_announcement(raw + bytes((byte,)), network(), now_us=10**15)


@given(announcements, announcements, generations)
def test_signatures_of_another_statement_prove_nothing(
    one: Announcement, other: Announcement, which: list[int]
) -> None:
    if one == other:
        return
    first, second = sign(one, which), sign(other, which)
    body = 3 + int.from_bytes(first[1:3], "little")
    signatures = second[3 + int.from_bytes(second[1:3], "little") :]
    with pytest.raises(BadAnnouncement):
        read_announcement(first[:body] + signatures, network(), now_us=one.issued_us)


headers = st.sampled_from([b"\x91", b"\x9f", b"\xdd\xff\xff\xff\xff", b"\x81", b"\xdf\x00\x01\x00\x00", b"\xc6\x7f\xff\xff\xff", b"\xdb\x00\x00\x10\x00", b"\xc9\x00\x00\x00\x09\x05", b"\xd6\xff"])  # fmt: skip
bombs = st.builds(lambda header, count, tail: header * count + tail, headers, st.integers(1, 4000), st.binary(max_size=40))  # fmt: skip


@given(st.one_of(st.binary(max_size=5000), bombs), st.sampled_from(["bare", "statement", "behind"]))
@example(b"\x91" * 4000, "statement")
@example(b"\x91" * 4000, "behind")
def test_anything_else_is_refused(junk: bytes, place: str) -> None:
    """Alone, as a statement, and as the signatures of a statement that is in order."""
    raw = sign(ORIGINAL, [0])
    signed = raw[: 3 + int.from_bytes(raw[1:3], "little")]
    if place == "statement":
        junk = b"\x02" + min(len(junk), 0xFFFF).to_bytes(2, "little") + junk
    elif place == "behind":
        junk = signed + junk
    with pytest.raises(BadAnnouncement):
        read_announcement(junk, network(), now_us=10**15)
