"""Spark's directory as workers see it: pyspark in files, everything else as it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark

from spark.home import compiled_pyspark, create_home

INSTALLED = Path(pyspark.__file__).resolve().parent


def test_what_spark_shows_workers_is_not_the_archive(tmp_path: Path) -> None:
    """As Spark itself puts PYTHONPATH together; nothing else of site-packages comes with it."""
    home = tmp_path / "home"
    create_home(home)
    archive = home / "python/lib/pyspark.zip"
    assert [one.name for one in archive.iterdir()] == ["pyspark"]
    program = "import pyspark.taskcontext as one; print(one.__file__)"
    told = subprocess.run(
        [sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, text=True, check=True,
        env={"PYTHONPATH": f"{archive}{os.pathsep}{next((home / 'python/lib').glob('py4j-*'))}"},
    ).stdout.split()  # fmt: skip
    assert told == [str(archive / "pyspark/taskcontext.py")]


def test_the_rest_is_what_was_installed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    create_home(home)
    for name in ("bin", "jars"):
        assert (home / name).resolve() == INSTALLED / name
    names = {one.name for one in (home / "python/lib").iterdir()}
    assert names == {one.name for one in (INSTALLED / "python/lib").iterdir()}


def test_only_what_is_started_meanwhile_is_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with compiled_pyspark():
        assert Path(os.environ["SPARK_HOME"], "python/lib/pyspark.zip").is_dir()
    assert "SPARK_HOME" not in os.environ


def test_a_home_of_the_users_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with compiled_pyspark():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_where_spark_is_not_from_pip_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(
        "spark.home.find_spec", lambda name: type("", (), {"origin": package / "__init__.py"})
    )
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with compiled_pyspark():
        assert "SPARK_HOME" not in os.environ
