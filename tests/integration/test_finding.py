"""Finding each other without multicast: late seeds, lying seeds, files, and two hosts."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import zmq

import mesh
from discovery import resolver
from mesh.protocol.frame import CONTROL
from mesh.protocol.instructions import Dial, ProbeResult
from mesh.zmq_transport import RESOLVERS_MAX
from security.announcement import URI, Announcement, Endpoint
from security.keys import derive
from tests.loopback import ANY_PORT, HOST
from tests.nodes import free_ports, linked, node
from tests.processes import SECRET, Process
from tests.waiting import until, until_in_thread


async def test_a_node_that_knows_one_seed_learns_the_whole_network() -> None:
    async with (
        node("databases") as first, node("caches", first) as second, node("web", second) as third,
        node("shop", third) as last,
    ):  # fmt: skip
        await linked(last, first, second, third)
        await linked(first, second, third)


async def test_a_seed_that_comes_up_late() -> None:
    port = free_ports(1)
    seed = f"tcp://{HOST}:{port}"
    async with mesh.join(
        "shop", zeroconf=False, network_secret=SECRET, listen=ANY_PORT, seeds=[seed]
    ) as shop:
        await until(lambda: seed in shop._core.peering.dialler.seeds._seeds)
        async with node("databases", listen=seed) as late:
            await linked(shop, late)


async def test_a_name_that_leads_to_a_node() -> None:
    async with node("databases", listen="tcp://127.0.0.1:0") as db:
        port = db.endpoints[0].rpartition(":")[2]
        async with node("shop", dns=[f"dns://localhost:{port}"]) as shop:
            await linked(shop, db)


async def test_addresses_from_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    path.write_text("# nobody yet\n")
    async with node("databases") as db, node("shop", seeds_file=path) as shop:
        path.write_text(f"{db.endpoints[0]}\n")
        await linked(shop, db)


async def test_a_finder_that_cannot_work_is_a_problem_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    async with node("shop", seeds_file=path) as shop:
        await until(lambda: str(path) in shop.problems().get("file", ""))
        path.write_text("")
        await until(lambda: shop.problems() == {})


async def test_a_seed_that_does_not_answer_is_a_problem_until_it_does() -> None:
    """Found: nothing was said of it, as long as the node lived."""
    port = free_ports(2)
    here, away = f"tcp://{HOST}:{port}", f"tcp://{HOST}:{port + 1}"
    async with node("shop", seeds=[here, away]) as shop:
        await until(lambda: f"no answer from {here}, {away}: " in shop.problems().get("seeds", ""))
        async with node("databases", listen=here) as db:
            await linked(shop, db)
            assert f"no answer from {away}: " in shop.problems()["seeds"]


@pytest.mark.parametrize("source", ["dns", "file"])
async def test_addresses_none_of_which_answers_are_a_problem_until_one_does(
    tmp_path: Path, source: str
) -> None:
    """Found: nothing was said of them, as long as the node lived."""
    port, path = free_ports(2), tmp_path / "seeds"
    here, away = f"tcp://{HOST}:{port}", f"tcp://{HOST}:{port + 1}"
    path.write_text(f"{here}\n{away}\n")
    found_by: dict[str, Any] = {"seeds_file": path}
    if source == "dns":
        found_by = {"dns": [f"dns://{HOST}:{port}"]}
    said = f"no answer from {here}" + (f", {away}" if source == "file" else "")
    async with node("shop", **found_by) as shop:
        await until(lambda: said in shop.problems().get(source, ""))
        async with node("databases", listen=here) as db:
            await linked(shop, db)
            assert shop.problems() == {}


async def test_each_name_that_leads_to_nobody_is_told() -> None:
    """Found: of several names, the problem of one alone was told."""
    port = free_ports(2)
    names = [f"dns://{HOST}:{port}", f"dns://{HOST}:{port + 1}"]
    said = [f"{one}: no answer from tcp{one.removeprefix('dns')}: " for one in names]
    async with node("shop", dns=[*names, *names]) as shop:
        await until(lambda: all(one in shop.problems().get("dns", "") for one in said))
        told = shop.problems()["dns"].split("; ")
    assert [one.partition("`")[0] for one in told] == said, "each once, in order"


async def test_a_node_that_finds_itself_is_told_that_the_others_do_not_answer(
    tmp_path: Path,
) -> None:
    """A file that all nodes share lists each of them."""
    port, path = free_ports(2), tmp_path / "seeds"
    here, away = f"tcp://{HOST}:{port}", f"tcp://{HOST}:{port + 1}"
    path.write_text(f"{here}\n{away}\n")
    async with node("shop", listen=here, seeds_file=path) as shop:
        await until(lambda: f"no answer from {away}: " in shop.problems().get("file", ""))
        async with node("databases", listen=away) as db:
            await linked(shop, db)
            assert shop.problems() == {}


async def test_nothing_is_kept_of_dials_that_are_refused() -> None:
    """libzmq keeps the queues of each, 40 KB, until it is told that it has ended."""
    seed = f"tcp://{HOST}:{free_ports(1)}"
    async with node("shop", seeds=[seed]) as shop:
        transport: Any = shop._driver._transport
        socket = transport._outbound[CONTROL]
        kept: list[str] = []

        def refused() -> bool:
            if transport._dials.by_endpoint(socket, seed) is not None:
                return False
            with suppress(zmq.ZMQError):  # ENOENT: no such dial.
                socket.raw.disconnect(seed)
                kept.append(seed)
            return bool(shop._core.peering.dialler.seeds.silent_endpoints())

        await until(refused)
        assert not kept


async def test_a_seed_that_lies_adds_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It forwards invented members, signed by a key that is not theirs, at addresses of others."""
    now_us = time.time_ns() // 1000
    fake = derive(b"f" * 32, "databases")
    invented = Announcement(
        node=b"i" * 16, incarnation=now_us, issued_us=now_us, lifetime_s=600, host=bytes(8),
        clusters=("databases",), endpoints=(Endpoint("tcp://127.0.0.1:9", fake.key_id),),
    ).sign([fake])  # fmt: skip
    async with node("databases") as db, node("liar", db) as liar:
        await linked(liar, db)
        liar._core.roster.announcements_except = lambda *_: [invented]  # type: ignore[method-assign]
        async with node("shop", liar) as shop:
            await linked(shop, liar)
            await until(lambda: any("announcement" in key for key in shop.statistics().refused))
            assert not [one for one in shop.members("databases") if one.node == b"i" * 16]


async def test_found_and_linked_on_one_host_by_zeroconf() -> None:
    """With multicast where the machine has it; skipped, with the reason, where it has not."""
    from examples.demo import multicast_problem

    problem = await multicast_problem()
    if problem is not None:
        pytest.skip(f"no multicast: {problem}")
    async with (
        mesh.join("databases", network_secret=SECRET) as db,
        mesh.join("shop", network_secret=SECRET) as shop,
    ):
        await linked(shop, db)


HOSTS = (f"mesh-find-{os.getpid()}-a", f"mesh-find-{os.getpid()}-b")
"""Of this process: another run may have left its own behind."""


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable: two hosts, as far as the network is concerned."""
    if shutil.which("ip") is None:
        pytest.skip("no `ip` command to make network namespaces with")
    try:
        try:
            for host in HOSTS:
                run("ip", "netns", "add", host)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        run("ip", "link", "add", "mesh-t0", "netns", HOSTS[0], "type", "veth", "peer", "name", "mesh-t1", "netns", HOSTS[1])  # fmt: skip
        for number, host in enumerate(HOSTS):
            run("ip", "-n", host, "addr", "add", f"10.99.0.{number + 1}/24", "dev", f"mesh-t{number}")  # fmt: skip
            run("ip", "-n", host, "link", "set", f"mesh-t{number}", "up")
            run("ip", "-n", host, "link", "set", "lo", "up")
        yield HOSTS
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


NO_GROUPS = "echo 0 > /proc/sys/net/ipv4/igmp_max_memberships"
"""Of a namespace: whoever joins a multicast group there is refused."""


def knows(one: Process, cluster: str, other: str) -> bool:
    return other in one.call("members", cluster=cluster)


@pytest.mark.parametrize(
    ("zeroconf", "seeds", "blocked"),
    [(False, True, False), (True, False, False), (True, True, True)],
    ids=["by a seed", "by zeroconf", "by a seed where multicast is blocked"],
)
def test_two_hosts(two_hosts: tuple[str, str], zeroconf: bool, seeds: bool, blocked: bool) -> None:
    settings = {"network_secret": SECRET, "zeroconf": zeroconf, "listen": "tcp://0.0.0.0:5600"}
    first = {"cluster": "databases", "settings": settings}
    second = {"cluster": "shop", "settings": dict(settings)}
    if seeds:
        second["settings"] = {**settings, "seeds": ["tcp://10.99.0.1:5600"]}
    for host in two_hosts if blocked else ():
        run("ip", "netns", "exec", host, "sh", "-c", NO_GROUPS)
    prefix = [["ip", "netns", "exec", host, sys.executable] for host in two_hosts]
    with (
        Process("tests.member", first, python=prefix[0]) as database,
        Process("tests.member", second, python=prefix[1]) as shop,
    ):
        views = [
            (shop, "databases", database.ready["node"]),
            (database, "shop", shop.ready["node"]),
        ]
        for one, cluster, other in views:
            until_in_thread(partial(knows, one, cluster, other))
            problem = one.call("problems").get("zeroconf", "")
            assert ("no multicast" in problem) == blocked, problem


async def test_a_node_that_gets_no_socket_to_ask_with_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: out of descriptors, or without IPv6, it crashed when a path was lost."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with node("shop") as one, node("crm", one) as other:
        monkeypatch.setattr(trio.socket, "socket", refuse)
        one._driver._transport.probe("tcp://[::1]:7000", bytes(16))
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.undo()
        await other.wait_members("shop")


async def test_a_name_that_nobody_answers_for_holds_up_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: libzmq looks names up in its I/O thread, so that one dead resolver cut all links."""
    given_up = threading.Event()

    def look_up(host: str, *what: int) -> list[Any]:
        if host == "dead.test":
            given_up.wait(60)
        if host != "db.test":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return socket.getaddrinfo(HOST, *what)

    monkeypatch.setattr(resolver, "getaddrinfo", look_up)
    async with node("databases") as db:
        port = db.endpoints[0].rpartition(":")[2]
        seeds = ["tcp://dead.test:1", "tcp://none.test:1", f"tcp://db.test:{port}"]
        async with node("shop", seeds=seeds) as shop:
            await linked(shop, db)
            named = shop._core.peering.dialler.seeds._seeds
            await until(lambda: not named["tcp://none.test:1"].awaits_answer)
            given_up.set()
            await until(lambda: not named["tcp://dead.test:1"].awaits_answer)


async def test_names_of_those_that_are_lost_keep_no_thread_that_others_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: whoever is asked for is asked for again each second, a thread waits ten for its name."""
    given_up = threading.Event()

    def look_up(*_: object) -> list[Any]:
        given_up.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(resolver, "getaddrinfo", look_up)
    async with node("shop") as shop:
        transport: Any = shop._driver._transport
        for _ in range(3 * RESOLVERS_MAX):
            transport.probe("tcp://dead.test:1", bytes(16))
        await until(lambda: transport._resolver._threads.available_tokens == 0)
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        given_up.set()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_dial_given_up_while_its_name_is_looked_up_is_no_connection(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    answer = threading.Event()

    def look_up(host: str, *what: int) -> list[Any]:
        answer.wait(60)
        return socket.getaddrinfo(HOST, *what)

    monkeypatch.setattr(resolver, "getaddrinfo", look_up)
    async with node("shop") as shop:
        transport: Any = shop._driver._transport
        keys = derive(bytes(32), "databases")
        transport.dial(Dial(10**9, CONTROL, "tcp://db.test:1", keys, keys))
        assert transport.send(10**9, b"a greeting")
        assert list(transport._resolving) == [10**9]
        if begun:
            await trio.testing.wait_all_tasks_blocked()
        transport.hang_up(10**9)
        answer.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (len(transport._resolving), len(transport._dials)) == (0, 0)


@pytest.mark.parametrize(
    "endpoint", ["tcp://a..b:1", "tcp://10.0.0.256:1", "tcp://0.0.0.0:1", "tcp://[::]:1"]
)
async def test_an_address_that_is_none_is_not_dialled(endpoint: str) -> None:
    async with node("shop") as one:
        lost: list[int] = []
        one._driver.lost = lambda conn, **_: lost.append(conn)  # type: ignore[method-assign]
        keys = derive(bytes(32), "databases")
        one._driver._transport.dial(Dial(10**9, CONTROL, endpoint, keys, keys))
        await until(lambda: lost == [10**9])


@pytest.mark.parametrize(
    "endpoint", ["tcp://a..b:1", "tcp://10.0.0.256:1", "tcp://0.0.0.0:1", "tcp://[::]:1"]
)
async def test_an_address_that_is_none_is_no_proof_and_harms_nobody(endpoint: str) -> None:
    """Found: announced by a member, it crashed every node that lost a lane of a link to that one."""
    assert URI.fullmatch(endpoint), "an announcement may have it"
    async with node("shop") as one:
        answers: list[ProbeResult] = []
        one._driver.probed = lambda *told: answers.append(told[-1])  # type: ignore[method-assign]
        one._driver._transport.probe(endpoint, bytes(16))
        await until(lambda: answers)
        assert answers == [ProbeResult.SILENT]
