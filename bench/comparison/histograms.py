"""Turns the samples of runs into quantiles, and into `.hgrm` texts over all rounds of a system and workload."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Mapping
from pathlib import Path

import numpy as np

from bench.latency.distribution import Distribution
from bench.latency.hgrm import text

PREFIX = {"response": "", "uncorrected": "uncorrected_", "delay": "delay_"}
"""Prefixes of the files' names; the response, the time to quote, has none."""
SAMPLES = ".npz"


def next_file(directory: Path, system: str, workload: str) -> Path:
    """Return the path for the samples of the next run of this system and workload."""
    number = len(list(directory.glob(f"{system}-{workload}-r*{SAMPLES}"))) + 1
    return directory / f"{system}-{workload}-r{number:02}{SAMPLES}"


def quantiles(file: Path) -> dict[str, dict[str, int]]:
    """Return the quantiles of each kind in ns; empty for a load that was given up before any request counted."""
    with np.load(file) as found:
        return {
            kind: Distribution.of(found[kind]).named() if len(found[kind]) else {}
            for kind in PREFIX
        }


def write_histograms(directory: Path, measured: Container[str], *, keep: bool) -> None:
    """Write `SYSTEM-WORKLOAD.hgrm` and the files of the two other kinds, and delete the samples unless `keep`.

    Args:
        measured: names of the sample files of all completed runs; others may be incomplete and are deleted.
    """
    for file in directory.glob(f"*-r*{SAMPLES}"):
        if file.name not in measured:
            file.unlink()
    for name, files in sample_files(directory).items():
        loaded = [np.load(file) for file in files]
        for kind, prefix in PREFIX.items():
            samples = np.concatenate([found[kind] for found in loaded])
            if len(samples):
                (directory / f"{prefix}{name}.hgrm").write_text(text(Distribution.of(samples)))
        for found, file in zip(loaded, files, strict=True):
            found.close()
            if not keep:
                file.unlink()


def sample_files(directory: Path) -> Mapping[str, list[Path]]:
    """Return the sample files (SYSTEM-WORKLOAD-rNN.npz) by SYSTEM-WORKLOAD."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(directory.glob(f"*-r*{SAMPLES}")):
        found[re.sub(r"-r\d+$", "", file.stem)].append(file)
    return found
