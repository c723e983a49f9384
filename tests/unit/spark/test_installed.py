"""What is said where a package or Java is missing."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from spark import installed
from spark.errors import SparkMissing


@pytest.fixture(autouse=True)
def all_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of them is there where this test runs."""
    monkeypatch.setattr(installed, "find_spec", lambda name: ModuleSpec(name, None))


def hide(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setattr(
        installed, "find_spec", lambda name: None if name == hidden else ModuleSpec(name, None)
    )


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyarrow")
    for check in (installed.check_reading, installed.check_spark):
        with pytest.raises(SparkMissing) as caught:
            check()
        assert caught.value.missing == "pyarrow"
    assert installed.missing_reason() == (
        "pyarrow is not installed: pip install '.[spark]' in the project's clone, and apt-get "
        "install openjdk-17-jre-headless if there is no Java 17"
    )


def test_captures_are_read_without_pyspark_and_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    hide(monkeypatch, "pyspark")
    installed.check_reading()
    assert "pyspark is not installed" in (installed.missing_reason() or "")


def test_java_is_named_when_it_is_all_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "needs Java 17 or later, found none" in (installed.missing_reason() or "")
