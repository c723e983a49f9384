"""The server of a system: started here, ended by its process ids, killed if this process is."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench.roles.peer_server import running, wait_listening
from bench.roles.stage import Stage, play
from bench.roles.system_client import place_of
from bench.systems import SYSTEMS
from bench.usage import Usage, usage_of


def run(stage: Stage) -> None:
    system, place = SYSTEMS[stage.settings["system"]], place_of(stage.settings)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(command, Path(place.directory)))
            for command in system.commands(place)
        ]
        wait_listening(processes[-1], place.ports[0])

        def usage() -> Usage:
            used = [usage_of(process.pid) for process in processes]
            return Usage(
                cpu_s=sum(one.cpu_s for one in used),
                rss_bytes=sum(one.rss_bytes for one in used),
                peak_rss_bytes=sum(one.peak_rss_bytes for one in used),
            )

        stage.usage = usage
        stage.ready()
        for _ in stage.orders():
            stage.done()


if __name__ == "__main__":
    play(run)
