"""What a session sees to for the processes of Spark, which is easily lost with the next version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_find_pyspark_compiled(session: SparkSession) -> None:
    def found(_: int) -> tuple[str, bool]:
        from importlib.util import cache_from_source
        from pathlib import Path

        from pyspark import worker

        return worker.__file__, Path(cache_from_source(worker.__file__)).exists()

    (told,) = session.sparkContext.parallelize([0], 1).map(found).collect()
    path, compiled = told
    assert path.endswith("python/lib/pyspark.zip/pyspark/worker.py")
    assert compiled
