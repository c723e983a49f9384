"""The built wheel works from an empty directory: top-level names like `security` are easily shadowed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVERYTHING = """
import importlib.util, pkgutil, sys
wheel, libraries = sys.argv[1:]
sys.path[:0] = [wheel, libraries]
tops = ["mesh", "durable", "security", "discovery"]
if importlib.util.find_spec("pyspark"):
    tops += ["spark", "bench"]
for top in tops:
    package = importlib.import_module(top)
    assert package.__file__.startswith(wheel), package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        importlib.import_module(module.name)
import mesh
for name in mesh.__all__:
    getattr(mesh, name)
"""


def test_everything_imports_from_the_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
        assert {f"{top}/py.typed" for top in ("mesh", "durable", "spark")} <= {*archive.namelist()}
    words = [sys.executable, "-I", "-S", "-c", EVERYTHING, str(tmp_path / "wheel"), sysconfig.get_path("purelib")]  # fmt: skip
    subprocess.run(words, check=True, cwd=tmp_path)
