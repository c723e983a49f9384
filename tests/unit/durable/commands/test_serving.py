"""What `mesh-broker serve` takes of the machine, before it opens anything."""

from __future__ import annotations

import resource
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from durable.commands.serving import raise_descriptor_limit, serve


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of descriptors, the last one in force."""
    found = [(1024, 524_288)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: found.append(limit))
    return found


class NotFurtherError(Exception):
    pass


async def test_found_connections_that_said_nothing_took_all_descriptors_that_a_shell_allows(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker takes what it may have before it listens."""

    def nothing(*given: Any, **settings: Any) -> Any:
        return Namespace(chunk_bytes=1024), None

    def begun(*given: Any, **settings: Any) -> Any:
        raise NotFurtherError

    monkeypatch.setattr("durable.commands.serving.check_start", nothing)
    monkeypatch.setattr("durable.commands.serving.settings", nothing)
    monkeypatch.setattr("durable.commands.serving.Broker", begun)
    with pytest.raises(NotFurtherError):
        await serve(Namespace(data=tmp_path, cluster="broker", encrypt=False))
    assert limits == [(1024, 524_288), (524_288, 524_288)]


def test_where_the_limit_cannot_be_raised_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(which: int, limit: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    raise_descriptor_limit()
