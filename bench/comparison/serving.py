"""One running system: its server, if it has one, on free ports and with a directory that is deleted afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict
from typing import Any

from bench.network import Network
from bench.processes import READY_S_MAX, Role, Troupe
from bench.systems.system import Place, System

START_S_MAX = 90.0
"""RabbitMQ and ActiveMQ start slowly."""


def start_s_max(system: System) -> float:
    return START_S_MAX if system.has_server else READY_S_MAX


class Serving:
    """Starts the roles of one system, with the settings that all of them get."""

    def __init__(self, troupe: Troupe, system: System, place: Place) -> None:
        self._troupe, self.system, self.place = troupe, system, place
        self._summoned: dict[str, Role] = {}

    def summon(self, *roles: str) -> None:
        """Let roles that are started later load their code already, which takes most of a short run."""
        for role in roles:
            self._summoned[role] = self._troupe.summon(f"system_{role}")

    def start(self, role: str, **settings: Any) -> Role:
        if role not in self._summoned:
            self.summon(role)
        started = self._summoned.pop(role)
        self._troupe.begin(started, {"system": self.system.name, **asdict(self.place), **settings})
        started.ready = started.hear(START_S_MAX)
        return started

    def end(self, *roles: Role) -> None:
        """End these roles; they exit at the same time."""
        for role in roles:
            role.dismiss()
        for role in roles:
            self._troupe.end(role)

    def end_all(self) -> None:
        """End all roles, the server last, before its directory is deleted."""
        self._troupe.end_all()


Serve = Callable[[Troupe, System, int, Sequence[str]], AbstractContextManager[Serving]]
"""As `serving`, which every measurement uses; tests may use a server several times."""


@contextmanager
def serving(
    troupe: Troupe, system: System, connections: int, roles: Sequence[str] = ()
) -> Iterator[Serving]:
    """Run the system's server during the block, and end it before its directory is deleted.

    Args:
        roles: clients that will be started; they load their code while the server starts.
    """
    with (
        closing(Network()) as network,
        tempfile.TemporaryDirectory(
            prefix="bench-system-", ignore_cleanup_errors=True
        ) as directory,
    ):
        ports = list(network.free_ports(max(system.ports(connections), 1)))
        # 0: clients get the size of payloads when they start.
        where = Place(ports=ports, secret=network.secret, directory=directory, size_bytes=0)
        place = Serving(troupe, system, where)
        if not system.has_server:
            place.summon(*roles)
            yield place
            return
        try:
            place.summon("server", *roles)
            place.start("server")
            yield place
            place.end_all()
        except BaseException as error:
            troupe.abandon(error)
            raise
