"""Checks whether there is a Java on which Spark runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .errors import JAVA_MIN, JavaMissing

ANSWER_S_MAX = 30.0


def check_java() -> str:
    """Return the `java` that Spark will use: that of JAVA_HOME, or the first one on PATH.

    Raises:
        JavaMissing: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise JavaMissing(f"none in JAVA_HOME, {home}" if home else "none")
    version = _version(found)
    if version < JAVA_MIN:
        raise JavaMissing(
            f"Java {version} ({found})" if version else f"one that does not answer ({found})"
        )
    return found


def _version(java: str) -> int:
    """Return 17 for 17.0.15, 8 for 1.8.0; 0 if it does not tell."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S_MAX, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    matched = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(matched[1]) if matched else 0
