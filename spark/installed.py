"""Whether what the Spark tier needs is installed: the packages of the extra `spark`, and a Java."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import JavaMissing, SparkMissing
from .java import check_java

READING = ("numpy", "pyarrow")
"""What captures are read with where there is no Spark."""


def check_reading() -> None:
    """Raises SparkMissing."""
    _check(READING)


def check_spark() -> None:
    """Raises SparkMissing, JavaMissing: there can be no session."""
    _check(("pyspark", "pandas", *READING))
    check_java()


def missing() -> str | None:
    """Why there can be no session, and what to install; None: there can be one."""
    try:
        check_spark()
    except (SparkMissing, JavaMissing) as error:
        return str(error)
    return None


def _check(packages: tuple[str, ...]) -> None:
    for name in packages:
        if find_spec(name) is None:
            raise SparkMissing(name)
