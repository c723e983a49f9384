"""Who met nobody is told what is known of it, and where to look on."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from socket import AF_INET, AF_INET6, gaierror
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from discovery import resolver
from mesh.commands.reaching import (
    ANSWER_S_MAX,
    endpoint_problem,
    explain_no_members,
    wait_discovery,
)
from mesh.node import Node
from mesh.time_limits import PARTS
from tests.driving import Ticking, driving

SECONDS = 8.0
DOCTOR = "`mesh doctor` may tell why"


@pytest.mark.parametrize(
    ("members", "refused", "says"),
    [
        (0, {}, f"mesh: no other members found; {DOCTOR}\n"),
        (0, {"a connection": 2}, f"mesh: no other members found; {DOCTOR}\n"),
        (1, {"a connection": 2}, f"mesh: some nodes were refused; {DOCTOR}\n"),
        (1, {}, ""),
    ],
)
async def test_the_doctor_is_named_where_it_may_know_more(
    members: int, refused: dict[str, int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node: Any = SimpleNamespace(
        config=SimpleNamespace(seeds=()), problems=dict, members=lambda: [object()] * members,
        statistics=lambda: SimpleNamespace(refused=refused),
    )  # fmt: skip
    await explain_no_members(node)
    assert capsys.readouterr().err == says


async def test_an_address_of_a_family_that_is_not_here_is_one_that_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: without IPv6, a name that has such an address as well ended the doctor."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(trio.socket, "socket", refuse)
    assert "not supported by protocol" in str(await endpoint_problem("tcp://[::1]:1"))


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        (["::1"], "host name shop.example cannot be resolved to an IPv4 address; correct it, or"),
        (["::1", "192.0.2.1", "192.0.2.2"], "connection refused, nothing listens there"),
        (["::1", "192.0.2.2", "192.0.2.1"], None),
    ],
)
async def test_of_a_name_the_address_is_tried_that_a_node_dials(
    addresses: list[str], problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: a name counted as one that answers where any of its addresses did, also by IPv6."""

    def resolve(_host: str, port: int, family: int, *_: object) -> list[tuple[object, ...]]:
        of = [(AF_INET6 if ":" in one else AF_INET, one) for one in addresses]
        found: list[tuple[object, ...]] = [
            (kind, 0, 0, "", (one, port)) for kind, one in of if family in (0, kind)
        ]
        if not found:
            raise gaierror("no address of this family")
        return found

    async def connect(address: tuple[str, int]) -> None:
        if address[0] == "192.0.2.1":
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(resolver, "getaddrinfo", resolve)
    monkeypatch.setattr(
        trio.socket, "socket", lambda *_: nullcontext(SimpleNamespace(connect=connect))
    )
    found = await endpoint_problem("tcp://shop.example:7400")
    assert str(found).startswith(str(problem))


async def test_a_loop_that_is_late_has_time_left_to_look_around(mock_clock: MockClock) -> None:
    """Found: `mesh members` said that nobody is here, of whom a loop that was blocked for as long had to hear yet."""
    driver, looked = driving(Ticking()), False

    async def look() -> None:
        nonlocal looked
        await wait_discovery(cast("Node", driver), SECONDS)
        looked = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver._run_timers)
        nursery.start_soon(look)
        await wait_all_tasks_blocked()
        for part in range(PARTS):
            assert not looked
            mock_clock.jump(10 * SECONDS if part == 0 else SECONDS / PARTS)
            await wait_all_tasks_blocked()
        assert looked
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answers", [True, False])
async def test_an_address_that_answers_while_the_loop_is_blocked_leads_somewhere(
    answers: bool, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it was said not to answer, and a firewall was looked for."""
    resolved, connected, found = trio.Event(), trio.Event(), list[str | None]()

    async def look_up(*_: object) -> list[str]:
        await resolved.wait()
        return ["192.0.2.1"]

    async def connect(_address: object) -> None:
        await connected.wait()

    monkeypatch.setattr(resolver.Resolver, "look_up", look_up)
    monkeypatch.setattr(
        trio.socket, "socket", lambda *_: nullcontext(SimpleNamespace(connect=connect))
    )

    async def ask() -> None:
        found.append(await endpoint_problem("tcp://shop.example:7400"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        mock_clock.jump(10 * ANSWER_S_MAX)
        resolved.set()  # Both are there by now, and are read in two turns.
        if answers:
            connected.set()
        await wait_all_tasks_blocked()
        mock_clock.autojump_threshold = 0
    expected = None if answers else "no answer within 2 s; check for a firewall in between"
    assert found == [expected]
    assert trio.current_time() <= 11 * ANSWER_S_MAX
