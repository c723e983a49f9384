"""What a run's samples become: `.hgrm` texts of all rounds of a system and workload, pooled."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.latency.distribution import Distribution
from bench.latency.hgrm import text

PREFIX = {"response": "", "service": "uncorrected_", "delay": "delay_"}
"""Of the file's name: the response is the one to quote."""


def write_histograms(directory: Path, *, keep: bool) -> None:
    """`SYSTEM-WORKLOAD.hgrm`, and the other two kinds; the samples go unless they are to stay."""
    for name, files in sample_files(directory).items():
        rows = np.concatenate([np.load(file) for file in files], axis=1)
        for prefix, row in zip(PREFIX.values(), rows, strict=True):
            (directory / f"{prefix}{name}.hgrm").write_text(text(Distribution.of(row)))
        if not keep:
            for file in files:
                file.unlink()


def sample_files(directory: Path) -> Mapping[str, list[Path]]:
    """Those of each system and workload: SYSTEM-WORKLOAD-rNN.npy."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(directory.glob("*-r*.npy")):
        found[re.sub(r"-r\d+$", "", file.stem)].append(file)
    return found
