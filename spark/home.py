"""A SPARK_HOME in which the processes that Spark starts find a compiled pyspark.

Workers, planners and streaming queries first import pyspark from `python/lib/pyspark.zip` in SPARK_HOME. An
archive holds no compiled code, so each process compiles what it imports, which takes 1 s of CPU; the
package that pip installed is compiled already.

    home/  bin, jars ...              links to what is installed
           python/lib/py4j-*.zip      likewise
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


def create_home(home: Path) -> None:
    """Create the directory `home`, to be used as SPARK_HOME.

    Raises:
        FileNotFoundError: pyspark is not laid out as pip installs it.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pyspark")
    installed = Path(spec.origin).parent
    library = home / "python/lib"
    archive_directory = library / ARCHIVE
    found = [one for one in installed.iterdir() if one.is_dir() and one.name != "python"]
    archives = list((installed / "python/lib").iterdir())
    archive_directory.mkdir(parents=True)
    for one in found:
        (home / one.name).symlink_to(one)
    for one in archives:
        if one.name != ARCHIVE:
            (library / one.name).symlink_to(one)
    (archive_directory / "pyspark").symlink_to(installed)


@contextmanager
def compiled_pyspark() -> Iterator[None]:
    """Let processes started in the block import the compiled pyspark, if pip has installed it.

    A SPARK_HOME set by the user is kept. Ours is removed when this process ends, and the JVM with it.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    home = tempfile.mkdtemp(prefix="mesh-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    try:
        create_home(Path(home, "home"))
    except OSError:
        yield
        return
    os.environ["SPARK_HOME"] = str(Path(home, "home"))
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
