"""A store with a data key: who opens it, what its files give away, and what damage costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from durable.errors import (
    ForeignStore,
    NewerFormat,
    StoreError,
    StoreFailed,
    StoreKeyMissing,
    StoreKeyWrong,
)
from durable.log.bodies import decode_moved, move
from durable.log.checkpoint import Unusable
from durable.log.checkpoints import Checkpoint, Checkpoints, Root
from durable.log.cipher import as_written
from durable.log.encryption import Encryption, cipher_of
from durable.log.faulty_disk import Faults, FaultyDisk, PowerCut
from durable.log.header import segment_name
from durable.log.memory_disk import MemoryDisk, Volume
from durable.log.real_disk import RealDisk
from durable.log.record import Draft, Kind, Target, store_seed
from durable.log.scan import Found, scan
from durable.log.store_keys import COPY_BYTES, decode_store_keys
from mesh.errors import TooLarge
from security.keyring import FileKeyring
from security.keys import derive
from tests.logs import (
    NEW_SECRET,
    OLD_SECRET,
    STORE_ID,
    PlainLog,
    acks,
    definitions,
    encryption,
    publish,
)

TEXT = b"the payload that nobody is to read"
DRAFTS = [
    Draft(Kind.PUBLISH, TEXT * 5, (Target(7, 1),), 5), definitions(["orders.eu"]), acks(7, 1, 2),
    Draft(Kind.CAPTURE, TEXT, (Target(7, 2), Target(8, 0)), 6),
]  # fmt: skip
CONTENTS = {position: (draft.kind, draft.body) for position, draft in enumerate(DRAFTS, 1)}


def write(volume: Volume, *drafts: Draft, use: Encryption | None) -> PlainLog:
    """Open, append, close."""
    log = PlainLog(MemoryDisk(volume), encryption=use)
    log.write(*drafts)
    log.close()
    return log


def contents(volume: Volume, use: Encryption | None) -> dict[int, tuple[int, bytes]]:
    log = PlainLog(MemoryDisk(volume), encryption=use)
    try:
        return log.contents()
    finally:
        log.close()


def every_byte(volume: Volume) -> bytes:
    return b"".join(bytes(file.seen) for file in volume.seen.values())


def store_keys(volume: Volume) -> list[bytes]:
    """Key ids in the file `keys`."""
    keys = decode_store_keys(bytes(volume.seen["keys"].seen))
    assert keys is not None
    return list(keys.wrapped)


def refused(kind: type[StoreError], match: str, volume: Volume, use: Encryption | None) -> None:
    """It is not opened, and not touched."""
    before = every_byte(volume)
    with pytest.raises(kind, match=match):
        PlainLog(MemoryDisk(volume), encryption=use)
    assert every_byte(volume) == before
    assert not volume.locked


def test_what_is_encrypted_is_read_with_the_key_and_stands_nowhere() -> None:
    volume = Volume()
    log = write(volume, *DRAFTS, use=encryption())
    assert log.report.encrypted
    assert contents(volume, encryption()) == CONTENTS
    assert contents(volume, encryption(encrypt=False)) == CONTENTS
    written = every_byte(volume)
    assert TEXT not in written
    assert b"orders.eu" not in written
    plain = Volume()
    write(plain, *DRAFTS, use=None)
    assert TEXT in every_byte(plain), "and the search would find it"
    assert "keys" not in plain.seen


def test_without_encryption_a_keyring_changes_no_byte() -> None:
    one, other = Volume(), Volume()
    write(one, *DRAFTS, use=None)
    log = write(other, *DRAFTS, use=encryption(encrypt=False))
    assert every_byte(one) == every_byte(other)
    assert not log.report.encrypted


def test_switching_it_affects_what_is_written_from_then_on() -> None:
    volume, expected = Volume(), {}
    for number, encrypt in enumerate([False, True, False, True], 1):
        draft = Draft(Kind.PUBLISH, b"%d" % number + TEXT)
        write(volume, draft, use=encryption(encrypt=encrypt))
        expected[number] = (Kind.PUBLISH, draft.body)
    assert contents(volume, encryption()) == expected
    written = every_byte(volume)
    assert [b"%d" % number + TEXT in written for number in expected] == [True, False, True, False]


def test_a_record_that_fits_in_the_plain_may_be_too_large() -> None:
    log = PlainLog(MemoryDisk(Volume()), encryption=encryption())
    room = log.committer.placer.append_bytes_max
    log.write(Draft(Kind.PUBLISH, bytes(room - 64 - 64)))
    with pytest.raises(TooLarge) as caught:
        log.append(Draft(Kind.PUBLISH, bytes(room - 64 - 56)))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (room + 8, room)


def test_segments_full_of_encrypted_records_are_sealed_and_read_again() -> None:
    volume = Volume()
    drafts = [publish(number, 200) for number in range(60)]
    log = PlainLog(MemoryDisk(volume), encryption=encryption())
    for draft in drafts:
        log.write(draft)
    log.close()
    again = PlainLog(MemoryDisk(volume), encryption=encryption())
    assert len(again.store.segments) > 3
    assert again.report.gaps == ()
    assert [one.body for one in again.records()] == [draft.body for draft in drafts]
    assert again.store.reader.record(33, 61).body == drafts[32].body


def test_a_moved_record_is_encrypted_anew() -> None:
    volume = Volume()
    log = PlainLog(MemoryDisk(volume), encryption=encryption())
    log.write(DRAFTS[0])
    log.write(move(log.records()[0], [Target(9, 4)]))
    for records in (log.records(), PlainLog(again(volume), encryption=encryption()).records()):
        assert bytes(decode_moved(records[1]).body) == DRAFTS[0].body
        assert records[1].targets == ((9, 4),)
    assert TEXT not in every_byte(volume)


def again(volume: Volume) -> MemoryDisk:
    volume.locked = False
    return MemoryDisk(volume)


# Keys


def test_a_key_is_needed_and_none_is_given() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    wanted = derive(NEW_SECRET, "broker").key_id.hex()
    for use in (None, Encryption(None, "broker", encrypt=True)):
        refused(
            StoreKeyMissing, f"encrypted for keys {wanted}.*MESH_NETWORK_SECRET_FILE", volume, use
        )


def test_encryption_is_asked_for_and_there_is_no_key_to_do_it_with() -> None:
    for keyring in (None, FileKeyring([derive(NEW_SECRET, "broker").public_half()])):
        with pytest.raises(StoreKeyMissing, match=r"none for encrypting .* secret key of 'broker'"):
            PlainLog(MemoryDisk(Volume()), encryption=Encryption(keyring, "broker", encrypt=True))


def test_no_key_of_the_keyring_fits() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption(NEW_SECRET))
    wanted, held = (derive(secret, "broker").key_id.hex() for secret in (NEW_SECRET, OLD_SECRET))
    use = encryption(OLD_SECRET)
    refused(
        StoreKeyWrong,
        f"for keys {wanted} of cluster 'broker'; the keys given are {held}",
        volume,
        use,
    )
    other = encryption(keyring=FileKeyring([derive(NEW_SECRET, "shop")]))
    refused(StoreKeyWrong, "the keys given are none", volume, other)


def test_keys_rotate_and_a_dropped_generation_opens_nothing() -> None:
    volume = Volume()
    new, old = (derive(secret, "broker").key_id for secret in (NEW_SECRET, OLD_SECRET))
    write(volume, *DRAFTS, use=encryption(OLD_SECRET))
    assert store_keys(volume) == [old]
    refused(StoreKeyWrong, "the keys given are", volume, encryption(NEW_SECRET))
    assert contents(volume, encryption(NEW_SECRET, OLD_SECRET)) == CONTENTS
    assert store_keys(volume) == [new, old]
    assert contents(volume, encryption(OLD_SECRET)) == CONTENTS, "by whoever has not rotated yet"
    assert contents(volume, encryption(NEW_SECRET, OLD_SECRET, encrypt=False)) == CONTENTS
    assert contents(volume, encryption(NEW_SECRET)) == CONTENTS
    assert store_keys(volume) == [new]
    refused(StoreKeyWrong, "the keys given are", volume, encryption(OLD_SECRET))


def test_nothing_is_written_to_keys_that_fit() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    before = bytes(volume.seen["keys"].seen)
    use = replace(encryption(), random_bytes=Random(2).randbytes)
    assert contents(volume, use) == CONTENTS
    assert bytes(volume.seen["keys"].seen) == before


def test_a_full_disk_puts_off_rotation_and_not_the_start(caplog: pytest.LogCaptureFixture) -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption(OLD_SECRET))
    old = store_keys(volume)
    volume.capacity_bytes = volume.used_bytes
    assert contents(volume, encryption(NEW_SECRET, OLD_SECRET)) == CONTENTS
    assert "old keys still open it" in caplog.text
    assert store_keys(volume) == old
    volume.capacity_bytes *= 2
    assert contents(volume, encryption(NEW_SECRET, OLD_SECRET)) == CONTENTS
    assert store_keys(volume)[1:] == old
    with pytest.raises(StoreFailed, match="no space left"):
        PlainLog(MemoryDisk(Volume(capacity_bytes=100)), encryption=encryption())


def test_a_full_disk_that_is_to_be_encrypted_for_the_first_time_is_told_with_the_file() -> None:
    """Found: no space for what, it did not say."""
    volume = Volume()
    write(volume, *DRAFTS, use=None)
    volume.capacity_bytes = volume.used_bytes
    with pytest.raises(StoreFailed, match=r"no space left.*/keys'; free some space"):
        PlainLog(MemoryDisk(volume), encryption=encryption())


def test_a_broker_of_another_name_with_both_keys_takes_a_store_over() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    assert contents(volume, encryption(cluster="storage")) == CONTENTS
    assert store_keys(volume) == [derive(NEW_SECRET, "storage").key_id]


def test_whoever_only_looks_leaves_the_keys_as_they_are() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption(OLD_SECRET))
    looking = replace(encryption(NEW_SECRET, OLD_SECRET, encrypt=False), cluster=None)
    assert contents(volume, looking) == CONTENTS
    assert store_keys(volume) == [derive(OLD_SECRET, "broker").key_id]


@pytest.mark.parametrize("cut_at", range(30))
def test_a_power_cut_while_keys_rotate_locks_nobody_out(cut_at: int) -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption(OLD_SECRET))
    both = encryption(NEW_SECRET, OLD_SECRET)
    try:
        PlainLog(FaultyDisk(volume, Faults(power_cut_at=cut_at)), encryption=both).close()
    except PowerCut:
        pass
    else:
        assert cut_at > 4, "the cuts go over all of it"
    for seed in range(8):
        assert contents(volume.after_power_cut(Random(seed)), both) == CONTENTS


# Damage


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("at", [*range(190), 300, COPY_BYTES - 1])
def test_one_copy_of_the_keys_is_enough_and_heals_the_other(copy: int, at: int) -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    before = bytes(volume.seen["keys"].seen)
    volume.flip("keys", 8 * (copy * COPY_BYTES + at))
    assert bytes(volume.seen["keys"].seen) != before
    assert contents(volume, encryption()) == CONTENTS
    healed = bytes(volume.seen["keys"].seen)
    assert healed[:COPY_BYTES] == healed[COPY_BYTES:]
    assert contents(volume, encryption()) == CONTENTS


def test_keys_that_are_damaged_or_gone_are_never_replaced_by_others() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    cut = volume.copy()
    cut.cut("keys", 100)
    for use in (encryption(), None):
        refused(StoreKeyMissing, "is damaged; restore it from a backup", cut, use)
    gone = volume.copy()
    MemoryDisk(gone).unlink("keys")
    for use in (encryption(), None):
        refused(StoreKeyMissing, "keys in .* is gone, .* log position 1 is encrypted", gone, use)


def test_keys_of_another_store_or_a_later_version_are_refused() -> None:
    one, other = Volume(), Volume()
    write(one, *DRAFTS, use=encryption())
    log = PlainLog(MemoryDisk(other), encryption=encryption(), store_id=b"t" * 16)
    log.close()
    one.seen["keys"].seen[:] = other.seen["keys"].seen
    refused(ForeignStore, f"keys belongs to store {(b't' * 16).hex()}", one, encryption())
    one.seen["keys"].seen[:] = newer_keys()
    refused(NewerFormat, "version 2", one, encryption())


def newer_keys() -> bytes:
    copy = b"MESHKEYS" + (2).to_bytes(4, "little") + bytes(COPY_BYTES - 12)
    checksum = crc32(copy[16:], crc32(copy[:12]))
    return (copy[:12] + checksum.to_bytes(4, "little") + copy[16:]) * 2


def test_a_body_that_does_not_decrypt_is_damage_like_any_other() -> None:
    """Checksums are right, the key is another one: somebody put records of another store's key here."""
    volume, other = Volume(), Volume()
    write(volume, *DRAFTS, use=encryption())
    write(other, *DRAFTS, use=replace(encryption(), random_bytes=Random(2).randbytes))
    name = segment_name(1)
    spans = record_spans(volume)
    at, end = spans[2]
    # Of the second record, all but the chain and what depends on it is the other store's.
    volume.seen[name].seen[at:end] = other.seen[name].seen[at:end]
    log = PlainLog(MemoryDisk(volume), encryption=encryption())
    assert log.contents() == {p: one for p, one in CONTENTS.items() if p != 2}
    (damage,) = log.report.damage
    assert (damage.at, damage.end) == (at, end)
    assert damage.kept_as is not None
    assert [(gap.start, gap.end) for gap in log.report.gaps if gap.start < gap.end] == [(2, 3)]


def record_spans(volume: Volume) -> dict[int, tuple[int, int]]:
    data = bytes(volume.seen[segment_name(1)].seen)
    found = scan(
        lambda size, at: data[at : at + size], 64, len(data), seed=store_seed(STORE_ID),
        decrypt=as_written,
    )  # fmt: skip
    return {one.record.position: (one.at, one.end) for one in found if isinstance(one, Found)}


def test_one_bit_flipped_anywhere_costs_the_record_it_is_in() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    random = Random(3)
    for position, (start, end) in record_spans(volume).items():
        for at in range(start, end, 3):
            hit = volume.copy()
            hit.flip(segment_name(1), 8 * at + random.randrange(8))
            log = PlainLog(MemoryDisk(hit), encryption=encryption())
            assert log.contents() == {p: one for p, one in CONTENTS.items() if p != position}
            assert log.report.damage or log.report.torn
            log.close()


def test_checksums_can_be_compared_without_a_key() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    found = PlainLog(MemoryDisk(volume), encryption=Encryption(None, as_written=True)).records()
    assert [one.kind for one in found] == [draft.kind for draft in DRAFTS]
    assert all(one.header.encrypted for one in found)
    assert TEXT not in b"".join(bytes(one.body) for one in found)
    hit = volume.copy()
    hit.flip(segment_name(1), 8 * (record_spans(volume)[3][0] + 70))
    log = PlainLog(again(hit), encryption=Encryption(None, as_written=True))
    assert [one.position for one in log.records()] == [1, 2, 4]


# Checkpoints


def checkpoints(volume: Volume, use: Encryption | None) -> Checkpoints:
    log = PlainLog(MemoryDisk(volume), encryption=use)
    log.close()
    return Checkpoints(again(volume), STORE_ID, lambda: log.committer.durable_end, log.store.cipher)


def test_checkpoints_are_encrypted_as_well() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    written = Checkpoint("jobs", 7, 3, b"enq of jobs", b"ack of jobs")
    files = checkpoints(volume, encryption())
    files.write_all([written])
    files.write_root(Root(2, 1, b"root with jobs"))
    assert b"jobs" not in every_byte(volume)
    for use in (encryption(), encryption(encrypt=False)):
        found = checkpoints(volume, use)
        assert found.read("jobs", 7) == written
        assert found.read_root() == Root(2, 1, b"root with jobs")
    without = Checkpoints(again(volume), STORE_ID, lambda: 9)
    assert (without.read("jobs", 7), without.read_root()) == (None, None)
    assert without.unusable == {Unusable.ENCRYPTED: 2}


def test_the_root_is_encrypted_as_long_as_there_is_a_key() -> None:
    """Without the key it is as good as none: the whole log is read, and what is encrypted is met."""
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    files = checkpoints(volume, encryption(encrypt=False))
    files.write_root(Root(2, 1, b"names", b"marks of 12."))
    assert b"names" not in every_byte(volume)
    found = checkpoints(volume, encryption(encrypt=False)).read_root()
    assert found == Root(2, 1, b"names", b"marks of 12.")
    assert Checkpoints(again(volume), STORE_ID, lambda: 9).read_root() is None


def test_encrypted_checkpoints_cannot_be_exchanged() -> None:
    volume = Volume()
    write(volume, *DRAFTS, use=encryption())
    files = checkpoints(volume, encryption())
    files.write_all([Checkpoint("jobs", 7, 3, b"enq", b"ack")])
    assert files.read("jobs", 7) is not None
    folder = again(volume).directory("queues").directory(files.digests()[0])
    file = folder.open("ack")
    data = bytearray(file.pread(file.size_bytes, 0))
    data[56] ^= 1  # Another log position, and a checksum that says so.
    data[8:12] = crc32(data[12:], crc32(data[:8])).to_bytes(4, "little")
    file.pwritev([bytes(data)], 0)
    assert files.read("jobs", 7) is None
    assert files.unusable[Unusable.ENCRYPTED] == 1


# For other processes


def test_bodies_can_be_read_with_the_directory_and_a_keyring(tmp_path: Path) -> None:
    log = PlainLog(RealDisk(tmp_path), encryption=encryption())
    log.write(*DRAFTS[:2])
    log.close()
    log = PlainLog(RealDisk(tmp_path), encryption=encryption(encrypt=False))
    log.write(*DRAFTS[2:])
    log.close()
    cipher = cipher_of(str(tmp_path), encryption().keyring)
    assert cipher is not None
    data = (tmp_path / segment_name(1)).read_bytes()
    found = scan(
        lambda size, at: data[at : at + size], 64, len(data), seed=store_seed(STORE_ID),
        decrypt=cipher.decrypt,
    )  # fmt: skip
    bodies = [one.record.body for one in found if isinstance(one, Found)]
    assert bodies == [draft.body for draft in DRAFTS]
    with pytest.raises(StoreKeyMissing):
        cipher_of(tmp_path, None)
    with pytest.raises(StoreKeyWrong):
        cipher_of(tmp_path, encryption(OLD_SECRET).keyring)
