"""Files that are replaced by new versions, and what is in their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable.log.new_versions import replace, replace_file, write_new
from durable.log.real_disk import RealDirectory

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_set_aside_earlier_is_in_the_way_of_nothing(tmp_path: Path) -> None:
    """Found by reading: a second directory could not be renamed, and the file was not written any more."""
    folder = RealDirectory(tmp_path)
    for aside in ("enq.aside", "enq.aside.2"):
        (tmp_path / "enq").unlink(missing_ok=True)
        (tmp_path / "enq").mkdir()
        (tmp_path / "enq" / "notes.txt").touch()
        write_new(folder, "enq", [b"ours"])
        replace(folder, "enq")
        assert (tmp_path / "enq").read_bytes() == b"ours"
        assert (tmp_path / aside / "notes.txt").exists()


def test_directories_in_the_way_of_a_file_and_of_its_new_version(tmp_path: Path) -> None:
    folder = RealDirectory(tmp_path)
    for name in ("keys", "keys.new"):
        (tmp_path / name).mkdir()
    replace_file(folder, "keys", b"ours")
    assert (tmp_path / "keys").read_bytes() == b"ours"
    assert {one.name for one in tmp_path.iterdir()} == {"keys", "keys.aside", "keys.new.aside"}
