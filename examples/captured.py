"""Traffic that a broker captures, and that Spark reads and replays.

The publishers do not know of the broker, and nothing is restarted: a stream is declared for their topics.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CAPTURE_S = float(os.environ.get("DEMO_CAPTURE_S", "60"))
"""How long to capture; DEMO_CAPTURE_S=20 makes the demo shorter."""
STREAM = "traffic"
SPEED = 10
PATIENCE_S = max(120.0, float(os.environ.get("DEMO_SECONDS_MAX", "60")))
"""Time limit of one command; DEMO_SECONDS_MAX raises it, as for the main job, for a machine that is busy."""
PICTURE = "demo-traffic.png"
SUBMIT = {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"}
"""Jobs this short end before Java's second compiler pays: with it they took 1.5 to 2 times the CPU time."""
Start = Callable[..., "subprocess.Popen[str]"]


class Captured:
    """The capturing part of the demo; capturing begins when the object is made."""

    def __init__(self, start: Start, environment: dict[str, str], directory: str) -> None:
        self._environment, self._start = SUBMIT | environment, start
        self._data = str(Path(directory) / "archive")
        start("durable.cli", "serve", "--data", self._data, "--cluster", "archive")
        self._run(
            "durable.cli", "declare-stream", STREAM, 'patterns=["shop.>"]', "--broker", "archive"
        )
        self._visitors = start("examples.visitors")
        self._began_s = time.monotonic()

    def analyse_and_replay(self) -> bool:
        """Print what was found; return whether everything was as promised."""
        time.sleep(max(0.0, self._began_s + CAPTURE_S - time.monotonic()))
        self._visitors.terminate()
        self._visitors.wait(PATIENCE_S)
        ledger = self._start("examples.ledger")
        print(
            f"captured the traffic of visitors for {CAPTURE_S:.0f} s, with a stream on shop.>",
            flush=True,
        )
        print(self._run("examples.analysis", self._data, PICTURE), end="", flush=True)
        report = json.loads(self._run(
            "mesh.cli", "replay", self._data, "--stream", STREAM, "--to", "replayed.>",
            "--speed", str(SPEED), "--json",
        ))  # fmt: skip
        print(f"replayed at {SPEED}x to the cluster ledger: {report['sent']:,} messages, p99 of "
              f"lateness {report['late_ms_p99']:.1f} ms")  # fmt: skip
        counted = json.loads(ledger.communicate(timeout=PATIENCE_S)[0])
        stored = self._stored()
        held: bool = counted == {f"replayed.{topic}": count for topic, count in stored.items()}
        print(f"  {'ok' if held else 'NOT AS PROMISED'}: the ledger counted "
              f"{sum(counted.values()):,} of {sum(stored.values()):,}, topic by topic")  # fmt: skip
        return held

    def _stored(self) -> dict[str, int]:
        """Return the count of messages per topic, read without Spark."""
        output = self._run("mesh.cli", "capture", "stats", self._data, "--stream", STREAM, "--json")
        rows = [json.loads(line) for line in output.splitlines()]
        return {row["topic"]: row["messages"] for row in rows}

    def _run(self, module: str, *arguments: str) -> str:
        """Run a command and return its stdout. Raises CalledProcessError if it fails."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments], env=self._environment, text=True, check=True,
            stdout=subprocess.PIPE, timeout=PATIENCE_S,
        ).stdout  # fmt: skip
