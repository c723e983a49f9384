"""Logs that are encrypted at rest, wholly or in part: the same rows with the key, one line without."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.errors import ForeignStore, StoreKeyMissing, StoreKeyWrong
from durable.log.cipher import as_written
from durable.log.config import LogConfig
from durable.log.encryption import Encryption
from durable.log.record import CHECKED_BYTES, HEADER_BYTES, store_seed
from durable.log.scan import Found, scan
from security.files import format_network_secret
from spark.capture.columns import RowSpec
from spark.capture.decryption import KeyFiles
from spark.capture.options import Options
from spark.capture.plan import Times
from spark.capture.reading import read
from spark.capture.rows import schema_of
from spark.capture.stored import segment_file
from spark.errors import CaptureDamaged, KeysUnusable
from tests.captures import SECOND_US, T0_US, Captured, compacted, expected_of, varied
from tests.logs import LARGE, NEW_SECRET, OLD_SECRET, encryption
from tests.stores import secret_file
from tests.unit.spark.loading import check_one_bit_flipped, loaded, looked, planned, rows_of

PLAIN = encryption(encrypt=False)
"""The same log, no longer encrypted."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MESH_NETWORK_SECRET", "MESH_NETWORK_SECRET_FILE", "MESH_KEYS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESH_NETWORK_SECRET", format_network_secret(NEW_SECRET))


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("size", ["1g", "1"])
@pytest.mark.parametrize(
    "use", [[encryption()], [None, encryption()], [None, encryption(), PLAIN, encryption(), PLAIN]]
)
def test_every_message_is_read_once_whatever_of_it_is_encrypted(
    tmp_path: Path, use: list[Encryption | None], size: str
) -> None:
    captured = varied(tmp_path, 6, use=use)
    found = loaded(tmp_path, maxPartitionBytes=size, batchRows=7)
    assert Counter(found) == Counter(captured.messages)
    captured.close()
    bytes_found = b"".join(file.read_bytes() for file in captured.path.glob("msgs.*"))
    assert (b"orders.eu" in bytes_found) is (len(use) > 1)


@pytest.mark.usefixtures("key")
def test_records_of_both_kinds_in_one_chunk(tmp_path: Path) -> None:
    """Those of a commit stand together; the first is longer than all others."""
    captured = Captured(tmp_path, LARGE, encryption=PLAIN)
    captured.declare("jobs", 1)
    for number in range(12):
        captured.reopen([PLAIN, encryption()][number % 2])
        captured.publish([1], [b"%d" % number * (500 if number == 0 else 1)] * (1 + number % 3))
    assert loaded(tmp_path) == captured.messages
    captured.close()


@pytest.mark.usefixtures("key")
def test_what_compaction_carried_is_found_by_what_stands_in_its_body(tmp_path: Path) -> None:
    captured = compacted(tmp_path, encryption())
    assert Counter(loaded(tmp_path)) == Counter(captured.messages)
    captured.free(1)
    left = expected_of(captured, {1})
    assert len(left) < len(captured.messages)
    for size in ("1g", "1"):
        assert Counter(loaded(tmp_path, maxPartitionBytes=size)) == Counter(left)
    captured.close()


@pytest.mark.usefixtures("key")
def test_the_plan_knows_as_much_as_of_a_plain_log(tmp_path: Path) -> None:
    logs = []
    for name, use in (("plain", None), ("encrypted", encryption())):
        captured = varied(tmp_path / name, 8, use=[use])
        captured.close()
        logs.append(looked(captured))
    plain, encrypted = logs
    assert encrypted.spans() == plain.spans()
    assert encrypted.lanes() == plain.lanes()
    assert (encrypted.end, encrypted.synced_end) == (plain.end, plain.synced_end)
    for number in range(0, 150, 10):
        at_us = T0_US + number * SECOND_US
        assert encrypted.position_at(at_us) == plain.position_at(at_us)


def test_keys_are_named_by_options_or_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = varied(tmp_path / "data", 2, records=20, use=[encryption()])
    captured.close()
    name = secret_file(tmp_path / "secret", format_network_secret(NEW_SECRET))
    other = secret_file(tmp_path / "other", format_network_secret(OLD_SECRET))
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", other)
    option = {"mesh.network_secret_file": name}
    assert Counter(loaded(tmp_path / "data", **option)) == Counter(captured.messages)
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", name)
    assert Counter(loaded(tmp_path / "data")) == Counter(captured.messages)


def test_one_line_without_the_key_and_with_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    other = secret_file(tmp_path / "other", format_network_secret(OLD_SECRET))
    varied(data, 2, records=20, use=[None, encryption()]).close()
    (empty := tmp_path / "keys").mkdir()
    for error, option, told in (
        (StoreKeyMissing, {}, "is encrypted for keys"),
        (StoreKeyMissing, {}, "MESH_NETWORK_SECRET_FILE"),
        (StoreKeyWrong, {"mesh.network_secret_file": other}, "use the keys it was written with"),
        (StoreKeyWrong, {"mesh.keys_dir": empty}, "the keys given are none"),
        (KeysUnusable, {"mesh.network_secret_file": tmp_path / "none"}, "none"),
    ):  # fmt: skip
        with pytest.raises(error) as caught:
            loaded(data, **option)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_task_without_the_key_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver had it when it planned."""
    captured = varied(tmp_path, 2, records=20, use=[encryption()])
    captured.close()
    with monkeypatch.context() as driver:
        driver.setenv("MESH_NETWORK_SECRET", format_network_secret(NEW_SECRET))
        (work,) = planned(tmp_path)
        assert len(rows_of(tmp_path, work)) == len(captured.messages)
    wanted = RowSpec(schema_of(Options(), ["value"]), Times(), None, 10)
    with pytest.raises(StoreKeyMissing, match="is encrypted for keys"):
        list(read(work, wanted, damaged="skip", fail_on_data_loss=False))
    with pytest.raises(KeysUnusable):
        nowhere = KeyFiles(network_secret_file=tmp_path / "none")
        list(read(work, wanted, damaged="skip", fail_on_data_loss=False, keys=nowhere))


def test_keys_that_nobody_needs_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", str(tmp_path / "none"))
    captured = varied(tmp_path / "data", 2, records=20)
    assert Counter(loaded(tmp_path / "data")) == Counter(captured.messages)
    captured.close()


@pytest.mark.usefixtures("key")
def test_the_file_of_another_store_opens_nothing(tmp_path: Path) -> None:
    captured = varied(tmp_path / "data", 2, records=20, use=[encryption()])
    captured.close()
    other = Captured(tmp_path / "other", store_id=b"o" * 16, encryption=encryption())
    other.close()
    (captured.path / "keys").write_bytes((other.path / "keys").read_bytes())
    with pytest.raises(ForeignStore):
        loaded(tmp_path / "data")
    (captured.path / "keys").unlink()
    with pytest.raises(StoreKeyMissing, match="the log has no data key"):
        loaded(tmp_path / "data")


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("seed", range(8))
def test_one_bit_flipped_costs_the_record_it_is_in_and_is_noticed(
    tmp_path: Path, seed: int
) -> None:
    check_one_bit_flipped(tmp_path, seed, [encryption()])


def forge(path: Path, number: int) -> int:
    """Another body in the so-manieth record of a segment, with checksums that are right; its size."""
    seed, content = store_seed(b"s" * 16), bytearray(path.read_bytes())
    with segment_file(str(path)) as file:
        found = [
            one
            for one in scan(file.pread, 64, len(content), seed=seed, decrypt=as_written)
            if isinstance(one, Found)
        ]
    at, end = found[number].at, found[number].end
    content[at + HEADER_BYTES + 16] ^= 1  # Behind the one target.
    content[at + 20 : at + 24] = crc32(content[at + HEADER_BYTES : end]).to_bytes(4, "little")
    checksum = crc32(content[at : at + CHECKED_BYTES], seed)
    content[at + CHECKED_BYTES : at + HEADER_BYTES] = checksum.to_bytes(4, "little")
    path.write_bytes(content)
    return end - at


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("segment_is_open", [False, True])
def test_a_body_that_does_not_decrypt_is_damaged_whatever_its_checksum_says(
    tmp_path: Path, segment_is_open: bool
) -> None:
    captured = Captured(tmp_path, LARGE if segment_is_open else LogConfig(
        segment_bytes=4096, reserve_bytes=0, free_bytes_min=0
    ), encryption=encryption())  # fmt: skip
    captured.declare("jobs", 1)
    for number in range(30):
        captured.publish([1], [b"%d" % number])
    captured.close()
    size_bytes = forge(captured.path / "msgs.0000000001", 4)
    with pytest.raises(CaptureDamaged, match=rf"{size_bytes} bytes at \d+ are damaged"):
        loaded(tmp_path)
    log = looked(captured)
    damaged = [one.end - one.at for contents in log.contents for one in contents.damaged]
    assert (damaged, log.spans()[1].messages) == ([size_bytes], 29)
    left = [one for one in captured.messages if one.value != b"3"]
    assert loaded(tmp_path, damaged="skip") == left
    (work,) = planned(tmp_path)
    kept = [row for row in rows_of(tmp_path, work, damaged="keep") if row["offset"] is None]
    assert [len(row["value"]) for row in kept] == [size_bytes]


@pytest.mark.usefixtures("key")
def test_lanes_whose_declaration_does_not_decrypt_are_read_under_their_number(
    tmp_path: Path,
) -> None:
    captured = Captured(tmp_path, LARGE, encryption=encryption())
    captured.declare("jobs", 7)
    for number in range(9):
        captured.publish([7], [b"%d" % number])
    captured.close()
    forge(captured.path / "msgs.0000000001", 0)
    found = loaded(tmp_path, damaged="skip")
    assert [(one.queue, one.value) for one in found] == [
        ("salvaged.7", b"%d" % number) for number in range(9)
    ]
