"""Which Java is found, and what is said when none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.errors import JavaMissing
from spark.java import check_java


def make_java(folder: Path, told: str) -> Path:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('openjdk version "21" 2023-09-19', ""),
        ('java version "1.8.0_402"', "Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
        ("Killed", "one that does not answer"),
    ],
)
def test_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, found: str) -> None:
    java = make_java(tmp_path / "bin", told)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if not found:
        assert check_java() == str(java)
        return
    with pytest.raises(JavaMissing, match=f"needs Java 17 or later, found {found}") as caught:
        check_java()
    assert str(caught.value).endswith("apt-get install openjdk-17-jre-headless")


def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match="found none: apt-get install openjdk-17-jre-headless"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match="none in JAVA_HOME"):
        check_java()
