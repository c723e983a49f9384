"""Checks whether the Spark tier's requirements are installed: the packages of the extra `spark`, and a Java."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import JavaMissing, SparkMissing
from .java import check_java

READING_PACKAGES = ("numpy", "pyarrow")
"""Packages for reading captures without Spark."""


def check_reading() -> None:
    """Raises SparkMissing if a package for reading is missing."""
    _check(READING_PACKAGES)


def check_spark() -> None:
    """Raises SparkMissing or JavaMissing if no session can be started."""
    _check(("pyspark", "pandas", *READING_PACKAGES))
    check_java()


def missing_reason() -> str | None:
    """Return why no session can be started and what to install; None if one can."""
    try:
        check_spark()
    except (SparkMissing, JavaMissing) as error:
        return str(error)
    return None


def _check(packages: tuple[str, ...]) -> None:
    for name in packages:
        if find_spec(name) is None:
            raise SparkMissing(name)
