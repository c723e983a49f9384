"""What a run's samples become: quantiles, and `.hgrm` texts of all rounds of a system and workload."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Mapping
from pathlib import Path

import numpy as np

from bench.latency.distribution import Distribution
from bench.latency.hgrm import text

PREFIX = {"response": "", "uncorrected": "uncorrected_", "delay": "delay_"}
"""Of the file's name: the response is the one to quote."""
SAMPLES = ".npz"


def next_file(directory: Path, system: str, workload: str) -> Path:
    """For the samples of the next run of these."""
    number = len(list(directory.glob(f"{system}-{workload}-r*{SAMPLES}"))) + 1
    return directory / f"{system}-{workload}-r{number:02}{SAMPLES}"


def quantiles(file: Path) -> dict[str, dict[str, int]]:
    """In ns, of each kind; none of a load that was given up before any request counted."""
    with np.load(file) as found:
        return {
            kind: Distribution.of(found[kind]).named() if len(found[kind]) else {}
            for kind in PREFIX
        }


def write_histograms(directory: Path, measured: Container[str], *, keep: bool) -> None:
    """`SYSTEM-WORKLOAD.hgrm`, and the other two kinds; the samples go unless they are to stay.

    Args:
        measured: names of the files of all runs that were: one that was cut short may have left half a file.
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
    """Those of each system and workload: SYSTEM-WORKLOAD-rNN."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(directory.glob(f"*-r*{SAMPLES}")):
        found[re.sub(r"-r\d+$", "", file.stem)].append(file)
    return found
