"""A system's server and clients: what becomes of them when a run ends before its time."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.comparison.serving import serving
from bench.durable import setting
from bench.processes import MeasurementFailed, Role, Troupe
from bench.systems import SYSTEMS
from bench.usage import below

SYSTEM = SYSTEMS["mesh-durable"]
"""It has a server, which is always there."""


def test_a_client_that_dies_beside_a_server_shows_its_stderr() -> None:
    """Found: the server's end ended all roles, and what they had written was gone with them."""
    with (
        pytest.raises(MeasurementFailed, match="the sequence must fit") as caught,
        Troupe() as troupe,
        serving(troupe, SYSTEM, 1) as place,
    ):
        place.start("consumer", size_bytes=1)
    (note,) = [one for one in caught.value.__notes__ if "stderr of system_consumer" in one]
    assert "Traceback" in note


def test_ctrl_c_waits_for_nobody_and_the_server_ends_before_its_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: 5 s for each client in the midst of its work, who does not hear that it is to leave."""
    patience, roles, end = list[float](), list[Role](), Role.end

    def noted(role: Role, patience_s: float) -> None:
        patience.append(patience_s)
        roles.append(role)
        end(role, patience_s)

    monkeypatch.setattr(Role, "end", noted)
    with (
        pytest.raises(KeyboardInterrupt),
        Troupe() as troupe,
        serving(troupe, SYSTEM, 1, ["consumer"]) as place,
    ):
        directory = Path(place.place.directory)
        assert directory.exists()
        raise KeyboardInterrupt
    assert patience == [0, 0]
    assert not any(map(is_alive, roles))
    assert not directory.exists()


def test_ctrl_c_while_a_broker_begins_ends_it_before_its_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Found: the directory went first, and was filled again."""
    roles, left = list[Role](), list[bool]()

    def interrupted(self: setting.Setting) -> Role:
        roles.append(self._troupe.start("raw_reply", {"window": 1}))
        raise KeyboardInterrupt

    @contextmanager
    def store(**_: Any) -> Iterator[str]:
        try:
            yield str(tmp_path)
        finally:
            left.extend(map(is_alive, roles))

    monkeypatch.setattr(setting.Setting, "start_broker", interrupted)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", store)
    with pytest.raises(KeyboardInterrupt), Troupe() as troupe, setting.serving(troupe):
        pass
    assert left == [False]


def test_a_server_that_ended_is_told_as_that() -> None:
    """Found: as a line that is missing in a file of the kernel's; also before its status is there."""
    with (
        pytest.raises(
            MeasurementFailed, match=r"process \d+ has ended|the server ended with status -9"
        ),
        Troupe() as troupe,
        serving(troupe, SYSTEM, 1),
    ):
        (role,) = troupe._roles
        (server,) = below(role.pid)
        os.kill(server, signal.SIGKILL)
        while True:  # Until the kernel has ended it.
            troupe.usage()


def is_alive(role: Role) -> bool:
    return Path(f"/proc/{role.pid}").exists()
