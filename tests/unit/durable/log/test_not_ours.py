"""Files and directories among the checkpoint files that are not ours and have the name of something of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable.log.checkpoint import directory_name
from durable.log.checkpoints import Root
from durable.log.real_disk import RealDirectory
from tests.unit.durable.log.test_checkpoints import checkpoint, open_in


def test_a_file_of_others_that_is_called_as_the_directory_of_a_queue_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: no checkpoint was finished."""
    files = open_in(RealDirectory(tmp_path))
    files.write_all([checkpoint("jobs", 9)])
    theirs = tmp_path / "queues" / directory_name("mail")
    theirs.write_text("theirs")
    for _ in range(2):
        files.remove_others(["jobs"])
    assert theirs.read_text() == "theirs"
    assert list(files.acks()) == [checkpoint("jobs", 9).ack]
    assert caplog.messages == [
        f"{theirs} was not deleted: it is not a directory, so not of this broker"
    ]


@pytest.mark.parametrize("name", ["enq", "ack.new"])
def test_a_directory_of_others_where_a_file_of_a_queue_has_to_be_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Found: no checkpoint was written, nor finished once the queue was gone."""
    files = open_in(RealDirectory(tmp_path))
    theirs = tmp_path / "queues" / directory_name("jobs") / name
    theirs.mkdir(parents=True)
    (theirs / "notes.txt").touch()
    files.remove_others([])
    for position in range(2):
        files.write_all([checkpoint("jobs", position)])
        assert files.read("jobs", 7) == checkpoint("jobs", position)
    files.remove_others([])
    aside = theirs.with_name(f"{name}.aside")
    assert sorted(tmp_path.glob("queues/*/**/*")) == [aside, aside / "notes.txt"]
    assert caplog.messages == [
        f"{theirs.parent} was not deleted: it contains {name}, not of this broker",
        f"renamed {theirs} to {name}.aside: it does not belong to this broker",
    ]


@pytest.mark.parametrize("name", ["queues", f"queues/{directory_name('jobs')}"])
def test_a_file_of_others_where_a_directory_has_to_be_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Found: with a file `queues` no store was opened, and nothing salvaged; with the other one no checkpoint was
    written any more."""
    theirs = tmp_path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("theirs")
    files = open_in(RealDirectory(tmp_path))
    assert list(files.acks()) == []
    files.remove_unfinished()
    for position in range(2):
        files.write_all([checkpoint("jobs", position)])
        assert files.read("jobs", 7) == checkpoint("jobs", position)
    assert theirs.with_name(f"{theirs.name}.aside").read_text() == "theirs"
    assert caplog.messages == [
        f"renamed {theirs} to {theirs.name}.aside: it does not belong to this broker"
    ]


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.new"])
def test_a_directory_of_others_where_the_root_has_to_be_is_put_aside(
    tmp_path: Path, name: str
) -> None:
    files = open_in(RealDirectory(tmp_path))
    (tmp_path / name).mkdir()
    for extra in (b"1", b"2"):
        files.reserve_root(extra, b"")
        files.write_root(Root(12, 5, extra))
        assert files.read_root() == Root(12, 5, extra)
    assert (tmp_path / f"{name}.aside").is_dir()
