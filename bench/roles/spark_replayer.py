"""A Spark session with two cores that replays a broker's directory to topics of the mesh."""

from __future__ import annotations

import tempfile
from pathlib import Path

import spark
from bench.roles.stage import Stage, leave_on_sigterm, play
from spark.replay.plan import ReplayPlan, read_destination
from spark.replay.replay import replay
from spark.settings import joining_options

MASTER = "local[2]"


def run(stage: Stage) -> None:
    settings = stage.settings
    leave_on_sigterm()  # Deletes its directories.
    session = spark.session(MASTER, spark_driver_memory="2g")
    session.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        secret = Path(directory, "network.secret")
        secret.touch(mode=0o600)
        secret.write_text(settings["network_secret"])
        joining = joining_options({
            "network_secret_file": str(secret), "seeds": settings["seeds"], "zeroconf": False,
            "listen": settings["listen"],
        })  # fmt: skip
        stage.ready()
        for order in stage.orders():
            plan = ReplayPlan(
                directory=settings["data"], to=read_destination(">"), speed=order["speed"]
            )
            found = replay(session, plan, {**joining, "cluster": settings["cluster"]})
            stage.done(report=found.report.plain())
    session.stop()


if __name__ == "__main__":
    play(run)
