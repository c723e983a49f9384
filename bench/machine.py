"""The machine and software that the figures were measured on, without which they cannot be compared."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import zmq

ROOT = Path(__file__).resolve().parent.parent
SYNCS = 100
LIBRARIES = ("pyzmq", "trio", "pynacl", "msgpack", "zeroconf")


def facts() -> dict[str, Any]:
    """Return facts about machine, software and settings, as of now."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libzmq": zmq.zmq_version(),
        **{name: library_version(name) for name in LIBRARIES},
        "gc": f"{'enabled' if gc.isenabled() else 'disabled'} {gc.get_threshold()}, as Python starts",
        "load_average_before": load_average(),
        "loop_10m_s": loop_s(),
        "temporary_directory": file_system(tempfile.gettempdir()),
        "dirty": is_dirty(),
        "command": " ".join(["mesh-bench", *sys.argv[1:]]),
    }


def sync_p50_us() -> float:
    """Return the median time of an fdatasync of 4 KB in the directory for temporary files, in us."""
    with tempfile.TemporaryDirectory() as directory, (Path(directory) / "probe").open("wb") as file:
        times_ns = []
        for _ in range(SYNCS):
            file.write(os.urandom(4096))
            file.flush()
            start_ns = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times_ns.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times_ns) / 1e3


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def library_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def versions(libraries: Sequence[str], packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those that are installed: Python libraries, and Debian packages if there is a dpkg."""
    found = {name: library_version(name) for name in libraries}
    if shutil.which("dpkg-query"):
        words = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *packages]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = (line.partition(" ") for line in done.stdout.splitlines())
        found |= {name: version for name, _, version in lines if version}
    return {name: version for name, version in found.items() if version != "not installed"}


def loop_s() -> float:
    """Return the time of ten million turns of an empty loop, extrapolated from a tenth: how fast the machine is now."""
    start_ns = time.perf_counter_ns()
    for _ in range(1_000_000):
        pass
    return (time.perf_counter_ns() - start_ns) * 10 / 1e9


def file_system(path: str) -> str:
    """Return the type of the file system that holds `path`: syncs on a tmpfs cost nothing and so measure nothing."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    real = Path(path).resolve()
    holding = [mount for mount in mounts if real.is_relative_to(mount[1])]
    return str(max(holding, key=lambda mount: len(mount[1]))[2]) if holding else "unknown"


def load_average() -> list[float]:
    return [round(load, 2) for load in os.getloadavg()]


def commit() -> str:
    return git("rev-parse", "HEAD").strip() or "unknown"


def is_dirty() -> bool:
    """Return whether tracked files differ from the commit, except docs: a page may be written during the run."""
    return bool(git("status", "--porcelain", "--untracked-files=no", ".", ":!docs").strip())


def git(*words: str) -> str:
    """Return the output of git, or "" without git or a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout
