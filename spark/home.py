"""Where the processes find pyspark that Spark starts: workers, planners, streaming queries.

Each of them imports it first, out of `python/lib/pyspark.zip` in SPARK_HOME. An archive holds no compiled
code, so each compiles what it imports, for 1 s of CPU; what pip has installed is compiled already.

    home/  bin, jars ...              links to what is installed
           python/lib/py4j-*.zip      the same
           python/lib/pyspark.zip/    a directory of that name, in which `pyspark` is such a link
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ARCHIVE = "pyspark.zip"


def lay_out(home: Path) -> None:
    """Make the directory `home`, which serves as SPARK_HOME.

    Raises:
        FileNotFoundError: pyspark is not as pip installs it.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pyspark")
    installed = Path(spec.origin).parent
    library = home / "python/lib"
    instead = library / ARCHIVE
    found = [one for one in installed.iterdir() if one.is_dir() and one.name != "python"]
    archives = list((installed / "python/lib").iterdir())
    instead.mkdir(parents=True)
    for one in found:
        (home / one.name).symlink_to(one)
    for one in archives:
        if one.name != ARCHIVE:
            (library / one.name).symlink_to(one)
    (instead / "pyspark").symlink_to(installed)


@contextmanager
def unpacked() -> Iterator[None]:
    """What is started in the block takes pyspark from where it is compiled, if pip has installed it.

    A SPARK_HOME of the user's stays. Ours goes when this process ends: so does the JVM.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    home = tempfile.mkdtemp(prefix="mesh-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    try:
        lay_out(Path(home, "home"))
    except OSError:
        yield
        return
    os.environ["SPARK_HOME"] = str(Path(home, "home"))
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
