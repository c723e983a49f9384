"""How far tasks are: told without making a file empty, for that is what a disk is slow at."""

from __future__ import annotations

from pathlib import Path

from spark.sink.noting import DIGITS, TaskProgress, read_progress, write_progress


def test_the_latest_numbers_of_all_partitions_are_added(tmp_path: Path) -> None:
    write_progress(tmp_path, 0, TaskProgress(1_000_000, 900_000))
    write_progress(tmp_path, 1, TaskProgress(30, 4))
    write_progress(
        tmp_path, 0, TaskProgress(200, 100)
    )  # Of another attempt: less than before, and nothing of it stays.
    assert read_progress(tmp_path) == (230, 104)


def test_a_file_is_overwritten_in_place(tmp_path: Path) -> None:
    write_progress(tmp_path, 0, TaskProgress(1, 1))
    before = (tmp_path / "0").stat()
    with (tmp_path / "0").open("rb") as held:
        write_progress(tmp_path, 0, TaskProgress(12, 3))
        assert held.read() == b"12".rjust(DIGITS) + b"3".rjust(DIGITS)
    after = (tmp_path / "0").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)


def test_a_file_that_has_just_been_made_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    write_progress(tmp_path, 1, TaskProgress(7, 7))
    assert read_progress(tmp_path) == (7, 7)
