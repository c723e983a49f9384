"""Members that die, freeze, stall, leave and return: real processes, real signals.

Times are the promise itself here (out of rotation within N seconds), so they are backstops of
`trio.fail_after`, never measurements. Where the promise is waited out, as after the 3 s of silence
that tell of a frozen process, there is room for a loaded machine; the simulation has those exactly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

import mesh
from tests.loopback import ANY_PORT
from tests.nodes import node
from tests.processes import SECRET, Process, member
from tests.waiting import until

MARGIN_S = 2.0
"""For a machine that does other things too."""


@asynccontextmanager
async def shop(*seeds: Process, **settings: Any) -> AsyncIterator[mesh.Node]:
    async with mesh.join(
        "shop", zeroconf=False, network_secret=SECRET, listen=ANY_PORT,
        seeds=[seed.ready["endpoint"] for seed in seeds], **settings,
    ) as node:  # fmt: skip
        with trio.fail_after(5):
            await node.wait_members("databases", count=len(seeds))
        yield node


@pytest.fixture
def databases() -> Iterator[list[Process]]:
    with member("databases") as one, member("databases", seeds=[one.ready["endpoint"]]) as other:
        yield [one, other]


async def changed(node: mesh.Node, process: Process, kind: str, within_s: float) -> mesh.Change:
    with trio.fail_after(within_s):
        async for change in node.watch("databases"):
            if change.kind == kind and change.member.node.hex() == process.ready["node"]:
                return change
    raise AssertionError("the node left")


async def test_the_end_of_a_connection_tells_before_silence_does_whoever_has_dialled() -> None:
    """Else a heartbeat to it would, which comes once in half a minute here."""
    patient = {
        "heartbeat_s": 30.0,
        "stalled_s": 60.0,
        "suspect_s": 60.0,
        "dead_s": 70.0,
        "resume_s": 80.0,
    }
    who_dialled: set[bool] = set()
    for _ in range(20):  # Whose id is larger dials, and both ids are drawn anew.
        async with shop(**patient) as node:
            with member("databases", seeds=node.endpoints) as one:
                with trio.fail_after(5):
                    await node.wait_members("databases")
                (link,) = node._core.peering.links.values()
                who_dialled.add(link.dialled)
                one.kill()
                await changed(node, one, "dead", 5 + MARGIN_S)
        if len(who_dialled) == 2:
            return
    raise AssertionError(f"always dialled: {who_dialled}")


async def test_killed_member_is_out_of_rotation_within_2_s(databases: list[Process]) -> None:
    """Promise: killed. Only requests in flight on it fail, and each says that it may have run."""
    async with shop(*databases) as node:
        victim, survivor = databases
        errors: list[mesh.MeshError] = []
        lost: list[mesh.PeerLost] = []
        answered: set[int] = set()
        stop = False

        async def ask() -> None:
            while not stop:
                try:
                    answered.add(int(await node.request("databases/pid", b"")))
                except mesh.MeshError as error:
                    errors.append(error)

        async def hang() -> None:
            try:
                await node.request("databases/hang", b"", timeout=60)
            except mesh.PeerLost as error:
                lost.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(ask)
            await until(lambda: len(answered) >= 2)
            held = 0

            def one_is_given_to_it() -> int:
                nonlocal held
                nursery.start_soon(hang)
                held = int(victim.call("counts").get("hangs", 0))
                return held

            await until(one_is_given_to_it)
            victim.kill()
            await changed(node, victim, "dead", 2)
            # What it had answered before has been read by now.
            await node.request("databases/pid", b"")
            answered.clear()
            await until(lambda: answered)
            stop = True
            nursery.cancel_scope.cancel()
        assert len(lost) >= held
        assert all(one.maybe_executed for one in lost)
        assert not errors, "the endpoint is idempotent: requests in flight were asked again"
        assert answered == {survivor.pid}


async def test_requests_in_flight_on_a_killed_member_say_maybe_executed() -> None:
    """Promise: PeerLost(maybe_executed=True), at once, for what may have run."""
    with member("databases") as only:
        async with shop(only) as node:
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(mesh.PeerLost) as caught:
                        await node.request("databases/hang", b"", timeout=30)
                    assert caught.value.maybe_executed

                nursery.start_soon(ask)
                await until(lambda: only.call("counts").get("hangs", 0))
                only.kill()
                await until(lambda: not nursery.child_tasks, 2 + MARGIN_S)
            with pytest.raises(mesh.NoMembers):
                await node.request("databases", b"", timeout=1)


@pytest.mark.slow
async def test_frozen_member_is_out_of_rotation_within_4_s_and_returns(
    databases: list[Process],
) -> None:
    """Promise: SIGSTOP. Out within 4 s; SIGCONT: it takes load again by itself."""
    async with shop(*databases) as node:
        frozen, other = databases
        frozen.freeze()
        with trio.fail_after(4 + MARGIN_S):
            async for change in node.watch("databases"):
                if (
                    change.kind in ("stalled", "suspect")
                    and change.member.node.hex() == (frozen.ready["node"])
                ):
                    break
        for _ in range(20):
            assert int(await node.request("databases/pid", b"")) == other.pid
        frozen.thaw()
        with trio.fail_after(10 + MARGIN_S):
            while int(await node.request("databases/pid", b"")) != frozen.pid:
                pass


@pytest.mark.slow
async def test_blocked_event_loop_is_stalled_within_4_s_and_returns(
    databases: list[Process],
) -> None:
    """Promise: stalled, not dead; links are kept; back by itself."""
    async with shop(*databases) as node, trio.open_nursery() as nursery:
        answers: list[bytes] = []

        async def block() -> None:
            answers.append(await node.request("databases/block", b"6", timeout=20))

        nursery.start_soon(block)
        stalled: mesh.Member | None = None
        with trio.fail_after(4 + MARGIN_S):
            async for change in node.watch("databases"):
                if change.kind == "stalled":
                    stalled = change.member
                    break
        with trio.fail_after(8 + MARGIN_S):
            async for change in node.watch("databases"):
                assert change.kind != "dead"
                if change.kind == "alive" and change.member is stalled:
                    break
        await until(lambda: answers, 8)
        assert answers == [b"done"]


async def test_a_member_that_leaves_is_gone_at_once(databases: list[Process]) -> None:
    """Promise: goodbye. Nothing fails, and nobody asks it any more."""
    async with shop(*databases) as node:
        leaver, stays = databases
        leaver.tell("leave")
        change = await changed(node, leaver, "left", 5)
        assert change.reason == "left"
        assert int(await node.request("databases/pid", b"")) == stays.pid


async def test_a_restarted_member_takes_load_again(databases: list[Process]) -> None:
    """Promise: a new process at another address is found through any node that knows it."""
    async with shop(*databases) as node:
        victim, survivor = databases
        victim.kill()
        await changed(node, victim, "dead", 2)
        with member("databases", seeds=[survivor.ready["endpoint"]]) as new:
            with trio.fail_after(5):
                while int(await node.request("databases/pid", b"")) != new.pid:
                    pass


async def test_a_tunnel_breaks_when_its_other_end_is_killed() -> None:
    """Promise: TunnelBroken, for the writer and for the reader, and never silence."""
    with member("databases") as only:
        async with shop(only) as node, trio.open_nursery() as nursery:

            async def write() -> None:
                with pytest.raises(mesh.TunnelBroken) as caught:
                    async with node.open_tunnel("databases") as tunnel:
                        while True:
                            await tunnel.send(bytes(10_000))
                assert caught.value.sent_bytes > 0

            async def read() -> None:
                with pytest.raises(mesh.TunnelBroken):
                    async with node.open_tunnel("databases") as tunnel:
                        async for _ in tunnel:
                            pass

            nursery.start_soon(write)
            nursery.start_soon(read)
            await until(lambda: sum(one.state == "open" for one in node.statistics().tunnels) >= 2)
            only.kill()
            await until(lambda: not nursery.child_tasks, 2 + MARGIN_S)


async def test_a_handler_hears_that_the_opener_of_its_tunnel_was_killed() -> None:
    """Promise: the same for the other side."""
    broken: list[mesh.TunnelBroken] = []
    service = mesh.Service("archive")

    @service.tunnel
    async def keep(tunnel: mesh.Tunnel) -> None:
        try:
            async for _ in tunnel:
                pass
        except mesh.TunnelBroken as error:
            broken.append(error)
            raise

    async with node(service) as archive:
        with member("databases", seeds=archive.endpoints) as opener:
            opener.call("pour", cluster="archive")
            await until(lambda: any(one.received_bytes for one in archive.statistics().tunnels))
            opener.kill()
            await until(lambda: broken, 2 + MARGIN_S)
    assert broken[0].received_bytes > 0


async def test_cancelling_a_request_cancels_its_handler() -> None:
    """Promise: cancellation reaches the member; so does the deadline."""
    with member("databases") as only:
        async with shop(only) as node:

            def count(what: str) -> int:
                return int(only.call("counts").get(what, 0))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(node.request, "databases/hang", b"", timeout=30))
                await until(lambda: count("hangs"))
                nursery.cancel_scope.cancel()
            timeout_s = 0.3
            while count("hangs") < 2:  # Too little for a handler to begin where others are busy.
                with pytest.raises(mesh.RequestTimeout):
                    await node.request("databases/hang", b"", timeout=timeout_s)
                timeout_s *= 2
            await until(lambda: count("cancelled") >= 2, 5 + MARGIN_S)
