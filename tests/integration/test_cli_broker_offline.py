"""`mesh-broker inspect`, `verify` and `salvage`: what they say of healthy and of damaged directories."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from pathlib import Path
from zlib import crc32

import msgpack
import pytest

from durable.broker.directory import vhost_path
from durable.cli import main
from durable.definition_forms import to_plain
from durable.definitions import QueueDefinition
from durable.log.bodies import EPOCH_BITS, ORIGIN, encode_definitions
from durable.log.checkpoints import Checkpoints, Root
from durable.log.reader import Reader
from durable.log.real_disk import RealDisk, RealFile
from durable.log.record import Draft, Kind, Record, Target
from durable.vhost import changes
from mesh.protocol.batch import batch_pieces
from tests.captures import Captured
from tests.logs import PUBLISHER, STORE_ID
from tests.offline import MESSAGES, Offline, checkpoint
from tests.stores import LANE, QUEUE, declared, flip, make_store, message, payload

LATER = 99
"""A kind of records that does not exist yet."""


def sequences(out: str) -> list[int]:
    return [int(line.split()[1]) for line in out.splitlines()]


def test_a_healthy_directory(directory: Offline) -> None:
    status, found = directory.json("verify", "data")
    assert (status, found["ok"]) == (0, True)
    (row,) = found["vhosts"]
    assert (row["records"], row["gaps"], row["torn"]) == (MESSAGES + 2, [], None)
    assert row["megabytes_per_s"] > 0
    status, found = directory.json("inspect", "data")
    (row,) = found["vhosts"]
    assert row["vhost"] == "/"
    assert row["records"]["publish"]["count"] == MESSAGES
    assert [one["sealed"] for one in row["segments"]][:2] == [True, True]
    assert [(one["name"], one["ready"]) for one in row["queues"]] == [(QUEUE, MESSAGES - 5)]
    status, out, _ = directory.run("inspect", "data")
    assert (status, f"queue {QUEUE}: {MESSAGES - 5} ready" in out) == (0, True)


def test_records_and_messages(directory: Offline) -> None:
    _, out, _ = directory.run("inspect", "data", "--records")
    lines = out.splitlines()
    assert len(lines) == MESSAGES + 2
    assert lines[1].split()[:3] == ["2", "1", "publish"]
    assert lines[1].endswith("1 x jobs jobs@0")
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE, "--json")
    row = json.loads(out.splitlines()[0])
    assert (row["position"], row["sequence"], row["key"], row["size_bytes"]) == (7, 5, QUEUE, 200)
    assert "payload" not in row
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE, "--cat", "--json")
    assert json.loads(out.splitlines()[-1])["payload"] == payload(MESSAGES - 1).decode()
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE)
    assert sequences(out) == [*range(5, MESSAGES)]
    status, _, said = directory.run("inspect", "data", "--queue", "job")
    assert (status, "did you mean 'jobs'?" in said) == (1, True)


def test_payloads_as_they_are(directory: Offline) -> None:
    status, out, _ = directory.run("inspect", "data", "--queue", QUEUE, "--cat")
    assert status == 0
    assert out.encode() == b"".join(payload(number) + b"\n" for number in range(5, MESSAGES))


def test_what_was_captured_is_shown_whatever_the_mesh_carried(directory: Offline) -> None:
    """Found: it could not be read, and was left out, for want of a publisher's properties."""
    pieces, _ = batch_pieces(PUBLISHER, 1, 0, 0, b"topic", [b"x"], shared_headers=b"not ours")
    drafts = [declared(), Draft(Kind.CAPTURE, b"".join(pieces), (Target(LANE, 0),), 1)]
    make_store(Path("captured"), drafts)
    status, out, _ = directory.run("inspect", "captured", "--queue", QUEUE, "--cat")
    assert (status, out) == (0, "x\n")


@pytest.mark.parametrize(
    ("time_us", "written"), [(1000, "1970-01-01T00:00:00.001Z"), (2**63 - 1, "9999-12-31T23:59:59.999Z")]
)  # fmt: skip
def test_times_are_written_as_by_every_command(
    directory: Offline, time_us: int, written: str
) -> None:
    """Found: `inspect` alone wrote +00:00, and a number where no calendar has the time."""
    pieces, _ = batch_pieces(PUBLISHER, 1, 0, time_us, b"jobs", [b"x"])
    drafts = [declared(), Draft(Kind.PUBLISH, b"".join(pieces), (Target(LANE, 0),), time_us)]
    make_store(Path("timed"), drafts)
    for shown in (["--records"], ["--queue", QUEUE]):
        _, out, _ = directory.run("inspect", "timed", *shown, "--json")
        assert json.loads(out.splitlines()[-1])["time"] == written


def test_salvage_of_what_is_whole_is_a_copy(directory: Offline) -> None:
    status, found = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert status == 0
    assert found["vhosts"][0]["copied"] == {"definitions": 1, "publish": MESSAGES, "acks": 1}
    assert directory.run("verify", "new")[0] == 0
    _, out, _ = directory.run("inspect", "new", "--queue", QUEUE)
    assert sequences(out) == [*range(5, MESSAGES)]
    (directory.path / "link").symlink_to("data")
    another = "itself: name another directory, empty or new"
    for wrong, says in (
        ("new", "is not empty"), ("data/new", "is inside data"), ("data", another), ("link", another),
        ("new/../data", another),
    ):  # fmt: skip
        status, _, said = directory.run("salvage", "data", "--to", wrong)
        assert (status, said.count("\n"), says in said) == (1, 1, True)


def test_a_salvage_with_a_wrong_size_leaves_nothing_behind(directory: Offline) -> None:
    """Found: with the right one, it said next that NEW was not empty."""
    status, _, said = directory.run("salvage", "data", "--to", "new", "--segment-size", "5")
    assert (status, "--segment-size is 5," in said) == (2, True)
    assert not (directory.path / "new").exists()


def test_a_salvage_leaves_to_others_what_it_is_told_to(directory: Offline) -> None:
    """Found: it was refused for 64 MiB of --free-min, an option that it did not have."""
    sizes = ("--segment-size", "64K", "--free-min")
    status, _, said = directory.run("salvage", "data", "--to", "full", *sizes, "1000000G")
    assert (
        status,
        "besides 1073741824000000 that must stay free (free_bytes_min, --free-min)" in said,
    ) == (
        1,
        True,
    )
    assert "a segment needs 65536 bytes (segment_bytes, --segment-size)" in said
    assert directory.run("salvage", "data", "--to", "new", *sizes, "0")[0] == 0


def test_a_copied_snapshot_says_nothing_of_log_positions(directory: Offline) -> None:
    """They are others there, and a broker would free what the snapshot does not know."""
    plain = to_plain(QueueDefinition(name=QUEUE))
    rest = [[changes.QUEUE, [LANE], plain], [changes.SNAPSHOT_END]]
    body = encode_definitions([[changes.SNAPSHOT, 5, 2], *rest])
    make_store(Path("snapped"), [declared(), message(0), Draft(Kind.DEFINITIONS, body)])
    assert directory.run("salvage", "snapped", "--to", "new", "--segment-size", "64K")[0] == 0
    copied = next((directory.path / "new").rglob("msgs.0000000001")).read_bytes()
    assert body not in copied
    assert encode_definitions([[changes.SNAPSHOT, 5], *rest]) in copied


@pytest.mark.parametrize("gone", [None, "enq", "ack"])
def test_settlements_that_only_a_checkpoint_has(directory: Offline, gone: str | None) -> None:
    """Found: what had been settled in a freed segment showed as ready, and came back by salvage. So it did where
    `ack` was gone."""
    left = [number for number in range(5, MESSAGES) if not 20 <= number < 30]
    checkpoint(directory, MESSAGES + 1, twice=gone == "ack")
    if gone:
        next(directory.log.rglob(gone)).unlink()
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE)
    assert sequences(out) == left
    _, found = directory.json("inspect", "data")
    assert [one["ready"] for one in found["vhosts"][0]["queues"]] == [len(left)]
    status, found = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert (status, found["vhosts"][0]["queues"]) == (0, {QUEUE: len(left)})
    assert not list((directory.path / "new").rglob("ack")), "it stands in the log now"
    _, out, _ = directory.run("inspect", "new", "--queue", QUEUE)
    assert sequences(out) == left


def test_a_checkpoint_of_what_the_log_never_reached_is_not_believed(directory: Offline) -> None:
    checkpoint(directory, MESSAGES + 1000)
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE)
    assert sequences(out) == [*range(5, MESSAGES)]


@pytest.mark.parametrize("name", ["store", "checkpoint", "enq", "ack"])
def test_a_damaged_file_beside_the_segments_is_said(directory: Offline, name: str) -> None:
    """Found: `no problems`, with status 0."""
    checkpoint(directory, MESSAGES + 1)
    disk = RealDisk(directory.log)
    Checkpoints(disk, STORE_ID, lambda: 2).write_root(Root(1, 1, msgpack.packb([])))
    disk.close()
    assert directory.run("verify", "data")[0] == 0
    (path,) = directory.log.rglob(name)
    for at in (0, path.stat().st_size // 2, path.stat().st_size - 1):
        flip(path, at)
        status, found = directory.json("verify", "data")
        assert (status, found["ok"]) == (1, False)
        assert found["vhosts"][0]["problems"] == [
            f"damaged: the file {path.relative_to(directory.log)}"
        ]
        flip(path, at)
    for left in (path.read_bytes()[:-1], b""):
        path.write_bytes(left)
        assert directory.run("verify", "data")[0] == 1


@pytest.mark.parametrize("gone", [["store"], ["vhost"], ["vhost", "store"]])
def test_a_vhost_without_its_store_file_or_its_name_is_named(
    directory: Offline, gone: list[str]
) -> None:
    """Found: a directory without the file `store` was well, as if nothing were missing."""
    path = vhost_path(directory.path / "data", "billing")
    shutil.copytree(directory.log.parent, path)
    (path / "vhost").write_text("billing")
    for name in gone:
        next(path.rglob(name)).unlink()
    said = {
        "vhost": f"the name of the vhost in {path.relative_to(directory.path)} cannot be read",
        "store": "missing: the file store",
    }
    for command, wrong in (("verify", 1), ("inspect", 0)):
        status, found = directory.json(command, "data")
        (row,) = [one for one in found["vhosts"] if one["vhost"] != "/"]
        assert row["vhost"] == (f"vhost-{path.name[:8]}" if "vhost" in gone else "billing")
        assert (status, row["problems"]) == (wrong, [said[name] for name in gone])
        _, out, err = directory.run(command, "data")
        for name in gone:
            assert said[name] in out + err


@pytest.mark.parametrize("gone", [["enq"], ["ack"], ["enq", "ack"]])
def test_a_file_that_the_root_names_and_that_is_gone_is_said(
    directory: Offline, gone: list[str]
) -> None:
    """Found: `no problems`; of an `ack`, what only it knew to be settled comes again."""
    checkpoint(directory, MESSAGES + 1)
    disk = RealDisk(directory.log)
    root = Root(1, 1, msgpack.packb([(QUEUE, LANE, 1)]))
    Checkpoints(disk, STORE_ID, lambda: 2).write_root(root)
    disk.close()
    assert directory.run("verify", "data")[0] == 0
    paths = [path for name in gone for path in directory.log.rglob(name)]
    for path in paths:
        path.unlink()
    for _ in range(2):
        status, found = directory.json("verify", "data")
        assert (status, found["vhosts"][0]["problems"]) == (
            1, [f"missing: the file {path.relative_to(directory.log)}" for path in paths],
        )  # fmt: skip
        if len(gone) == 2 and paths[0].parent.exists():
            paths[0].parent.rmdir()


def test_one_bit_in_the_middle(directory: Offline) -> None:
    flip(directory.first, directory.first.read_bytes().index(b"message 6 "))
    status, found = directory.json("verify", "data")
    (row,) = found["vhosts"]
    assert (status, found["ok"]) == (1, False)
    assert row["gaps"] == [{"start": 8, "end": 9, "synced": True}]
    assert len(row["damage"]) == 1
    status, out, _ = directory.run("verify", "data")
    assert "lost: log positions 8 to 8, 1 records; they had been confirmed" in out
    assert "damaged: bytes " in out
    assert "no problems" not in out
    status, _, said = directory.run("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert (status, "lost: log positions 8 to 8" in said) == (0, True)
    assert directory.run("verify", "new")[0] == 0
    _, out, _ = directory.run("inspect", "new", "--queue", QUEUE, "--cat", "--json")
    left = [json.loads(line)["payload"].encode() for line in out.splitlines()]
    assert left == [payload(number) for number in range(5, MESSAGES) if number != 6]


def test_a_sector_that_cannot_be_read_costs_what_is_in_it(
    directory: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: nothing of such a directory could be looked at, nor copied."""
    bad = directory.first.read_bytes().index(b"message 6 ")
    inode, pread = directory.first.stat().st_ino, RealFile.pread

    def read(file: RealFile, size_bytes: int, at: int) -> bytes:
        if at <= bad < at + size_bytes and os.fstat(file._descriptor).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size_bytes, at)

    monkeypatch.setattr(RealFile, "pread", read)
    monkeypatch.setattr("durable.log.read_only_disk.BLOCK_BYTES", 64)
    status, found = directory.json("verify", "data")
    assert (status, found["vhosts"][0]["gaps"]) == (1, [{"start": 8, "end": 9, "synced": True}])
    status, _, said = directory.run("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert (status, "lost: log positions 8 to 8" in said) == (0, True)
    _, out, _ = directory.run("inspect", "new", "--queue", QUEUE)
    assert len(sequences(out)) == MESSAGES - 5 - 1


def test_what_compaction_carried_is_salvaged_at_its_place(directory: Offline) -> None:
    """Found: it named log positions of the old log, by which Spark took it for a copy of something else:
    of this queue, 68 of 120 messages were read."""
    captured = Captured(Path("moved"))
    captured.declare("jobs", 1)
    captured.declare("other", 2)
    positions = [captured.publish([1, 2], [b"%d" % number, b"x" * 50]) for number in range(60)]
    freed = [one for one in positions if captured.segment_of(one) <= 2]
    for position in (*freed, positions[-20], freed[3]):  # One stands, one was carried twice.
        captured.carry(position, 1)
    captured.settle(2, 0, 2 * len(freed))
    captured.snapshot()
    captured.free(1, 2)
    captured.close()
    for old, new in (("moved", "first"), ("first", "second")):
        status, found = directory.json("salvage", old, "--to", new, "--segment-size", "4K")
        assert (status, found["vhosts"][0]["problems"]) == (0, [])
        copied = found["vhosts"][0]["copied"]
        assert copied == {"publish": 60, "definitions": copied["definitions"], "acks": 1}
        records = [
            json.loads(line)
            for line in directory.run("inspect", new, "--records", "--json")[1].splitlines()
        ]
        runs = [
            (one["lane"], one["first"]) for record in records for one in record.get("targets", ())
        ]
        assert [first for lane, first in runs if lane == 1] == [*range(0, 120, 2)]
        assert [first for lane, first in runs if lane == 2] == [*range(2 * len(freed), 120, 2)]


def test_what_compaction_has_cut_is_salvaged_with_what_is_left(directory: Offline) -> None:
    captured = Captured(Path("moved"))
    captured.declare("jobs", 1)
    values = [b"%d" % number + bytes(100) for number in range(10)]
    positions = [captured.publish([1], values) for _ in range(9)]
    last = captured.segment_of(positions[-1])
    while captured.segment_of(captured.publish([1], [b"x"])) == last:
        pass
    for position in positions:
        captured.carry(position, 1, without=[(0, 6), (7, 10)])
    captured.settle(1, 10 * len(positions), captured.messages[-1].offset)
    captured.snapshot()
    captured.free(*range(1, last + 1))
    captured.close()
    left = [*range(6, 10 * len(positions), 10), captured.messages[-1].offset]
    status, found = directory.json("salvage", "moved", "--to", "new", "--segment-size", "64K")
    assert (status, found["vhosts"][0]["queues"]) == (0, {"jobs": len(left)})
    for data in ("moved", "new"):
        assert directory.json("verify", data)[0] == 0
        assert "10 in 3 batches, 9 cut out" in directory.run("inspect", data, "--records")[1]
        lines = directory.run("inspect", data, "--queue", "jobs", "--json")[1].splitlines()
        assert [json.loads(line)["sequence"] for line in lines] == left


def test_what_was_carried_twice_is_read_a_few_times_and_not_once_each(
    directory: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: both copies of a record stand side by side in what is salvaged, and each time a megabyte was
    read for the other one: 4,000 messages took a minute and a half."""
    captured = Captured(Path("moved"))
    captured.declare("jobs", 1)
    positions = [captured.publish([1], [b"%d" % number]) for number in range(200)]
    for _ in range(2):
        for position in positions:
            captured.carry(position, 1)
    captured.snapshot()
    captured.free(*range(1, captured.segment_of(positions[-1]) + 1))
    captured.close()
    read: list[int] = []
    read_some = Reader.read_some

    def counted(self: Reader, position: int, end: int, limit_bytes: int) -> list[Record]:
        read.append(position)
        return read_some(self, position, end, limit_bytes)

    monkeypatch.setattr(Reader, "read_some", counted)
    monkeypatch.setattr("durable.commands.stored.READ_BYTES", 2000)
    status, found = directory.json("salvage", "moved", "--to", "new", "--segment-size", "64K")
    assert (status, found["vhosts"][0]["queues"]) == (0, {"jobs": 200})
    assert len(read) < 50


def test_what_makes_no_sense_here_is_salvaged_as_it_is(directory: Offline) -> None:
    """Found: a kind that only a later release knows ended salvage with a stack trace; contents that make no
    sense, with the advice not to use a copy that was as good as what was copied."""
    senseless = (Draft(LATER, b"later"), Draft(Kind.ACKS, b"no acks"))
    make_store(Path("odd"), [declared(), message(0), *senseless, message(1)])
    status, found = directory.json("salvage", "odd", "--to", "new", "--segment-size", "64K")
    assert (status, found["vhosts"][0]["queues"]) == (0, {QUEUE: 2})
    assert len(found["vhosts"][0]["problems"]) == 2
    copied = {"definitions": 1, f"kind {LATER}": 1, "publish": 2, "acks": 1}
    assert found["vhosts"][0]["copied"] == copied


def test_what_only_a_later_release_can_put_back_is_said(directory: Offline) -> None:
    """Found: with a stack trace."""
    carried = Draft(Kind.MOVED, ORIGIN.pack(1, LATER << EPOCH_BITS) + bytes(message(0).body))
    make_store(Path("odd"), [declared(), carried._replace(targets=message(0).targets)])
    status, _, said = directory.run("salvage", "odd", "--to", "new", "--segment-size", "64K")
    assert status == 1
    assert f"the record at log position 2 was of kind {LATER}" in said


def test_salvage_into_segments_smaller_than_what_is_read_at_once(tmp_path: Path) -> None:
    """Found: it ended there."""
    make_store(tmp_path / "data", [declared(), *map(message, range(500))])
    words = ["salvage", str(tmp_path / "data"), "--to", str(tmp_path / "new")]
    assert main([*words, "--segment-size", "64K"]) == 0
    assert main(["verify", str(tmp_path / "new")]) == 0


def test_a_lost_declaration_loses_no_message(directory: Offline) -> None:
    flip(directory.first, directory.first.read_bytes().index(b"durability"))
    _, found = directory.json("inspect", "data")
    assert found["vhosts"][0]["queues"] == []
    status, found = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert (status, found["vhosts"][0]["adopted"]) == (0, {"salvaged.1": MESSAGES - 5})
    _, out, _ = directory.run("inspect", "new", "--queue", "salvaged.1")
    assert len(out.splitlines()) == MESSAGES - 5


def test_a_file_that_was_cut(directory: Offline) -> None:
    """The rest of the last segment is a torn tail; a segment cut in the middle of the log is a gap."""
    last = max(one for one in directory.log.glob("msgs.*") if any(one.read_bytes()))
    at = last.read_bytes().rindex(b"MREC")
    with last.open("r+b") as file:
        file.truncate(at + 30)
    status, out, _ = directory.run("verify", "data")
    assert status == 1
    assert "torn tail" in out
    assert "lost" not in out
    with directory.second.open("r+b") as file:
        file.truncate(500)
    status, found = directory.json("verify", "data")
    (gap,) = found["vhosts"][0]["gaps"]
    assert gap["synced"]
    status, found = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert status == 0
    lost = gap["end"] - gap["start"]
    assert found["vhosts"][0]["queues"] == {QUEUE: MESSAGES - lost}, "the settlement is gone, too"


def test_every_file_cut_or_gone_is_said_and_never_a_stack_trace(directory: Offline) -> None:
    for path in sorted((directory.path / "data").rglob("*")):
        if not path.is_file() or path.name == "lock":
            continue
        content = path.read_bytes()
        for left in (0, 7, 40, len(content) // 2):
            path.write_bytes(content[:left])
            for words in (["verify", "data"], ["inspect", "data"]):
                directory.run(*words)
            directory.run("salvage", "data", "--to", "new", "--segment-size", "64K")
            shutil.rmtree(directory.path / "new", ignore_errors=True)
        path.unlink()
        directory.run("verify", "data")
        path.write_bytes(content)
    assert directory.run("verify", "data")[0] == 0


def test_a_later_format_is_not_touched(directory: Offline) -> None:
    store = directory.log / "store"
    data = bytearray(store.read_bytes())
    data[8:12] = struct.pack("<I", 2)
    data[12:16] = struct.pack("<I", crc32(data[16:], crc32(data[:12])))
    store.write_bytes(data)
    for words in (["verify", "data"], ["inspect", "data"], ["salvage", "data", "--to", "new"]):
        status, _, said = directory.run(*words)
        assert (status, said.count("\n")) == (1, 1)
        assert "format version 2" in said


def test_a_permission_that_cannot_be_read_is_told_and_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: `inspect`, `verify` and `salvage` ended with a trace."""
    monkeypatch.chdir(tmp_path)
    directory = Offline(tmp_path, capsys)
    said = {"cluster": "shop", "configure": "", "write": "(" * 486 + ")" * 486, "read": "jobs"}
    body = encode_definitions([[changes.PERMISSION, said]])
    make_store(tmp_path / "data", [Draft(Kind.DEFINITIONS, body)])
    said["capture"] = ".*"  # What it means that it is not in the log.
    told = "permission of 'shop': write is invalid and grants nothing"
    status, found = directory.json("verify", "data")
    assert status == 1
    assert found["vhosts"][0]["problems"][0].startswith(told)
    status, found = directory.json("inspect", "data")
    assert (status, found["vhosts"][0]["permissions"]) == (0, [said])
    status, _, err = directory.run("salvage", "data", "--to", "new")
    assert status == 0
    assert told in err
    status, found = directory.json("inspect", "new")
    assert (status, found["vhosts"][0]["permissions"]) == (0, [said])
