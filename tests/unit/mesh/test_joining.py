"""How failures leave `join`: the block's own as they are, ours as NodeCrashed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import durable
import mesh
from mesh.errors import ConfigError, KeyMissing
from mesh.joining import keyring_of
from mesh.protocol.instructions import Dial
from mesh.protocol.lane import Conn
from mesh.transport import Receiver
from security.announcement import Endpoint
from security.files import format_network_secret
from security.keyring import NetworkKeyring
from security.keys import derive
from tests.entering import only_async_with

SECRET = bytes(range(32))


class Nowhere:
    """A transport that reaches nobody, and breaks when told to."""

    def __init__(
        self, refuses: Exception | None = None, told: Sequence[str] = ("tcp://127.0.0.1:1",)
    ) -> None:
        self._refuses, self._told, self._broken = refuses, told, trio.Event()
        self.error = OSError("for the test")

    def fail(self) -> None:
        self._broken.set()

    async def run(
        self, receiver: Receiver, *,
        task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        if self._refuses is not None:
            raise self._refuses
        key_id = derive(SECRET, "x").key_id
        task_status.started([Endpoint(uri, key_id) for uri in self._told])
        try:
            await self._broken.wait()
        finally:
            if self._broken.is_set():
                raise self.error

    def dial(self, dial: Dial) -> None: ...
    def hang_up(self, conn: Conn) -> None: ...
    def probe(self, endpoint: str, node: bytes) -> None: ...

    def send(self, conn: Conn, frame: bytes) -> bool:
        return False

    def check_arrivals(self) -> bool:
        return False

    def receive(self) -> bool:
        return False


def join(transport: Nowhere) -> AbstractAsyncContextManager[mesh.Node]:
    keyring = NetworkKeyring([SECRET])
    return mesh.join("x", transport=transport, keyring=keyring, zeroconf=False)


@pytest.mark.parametrize("begin", [lambda _: mesh.join("shop"), durable.serve])
def test_under_asyncio_it_says_that_it_runs_in_trio(
    begin: Callable[[Path], AbstractAsyncContextManager[Any]], tmp_path: Path
) -> None:
    async def main() -> None:
        async with begin(tmp_path / "data"):
            raise AssertionError

    with pytest.raises(RuntimeError, match=r"^mesh requires trio: .* trio\.run\(main\)$"):
        asyncio.run(main())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "settings",
    [{"listen": "127.0.0.1:7600"}, {"listen": "tcp://h:1-2"}, {"seeds": ["x"]}, {"settle_s": -1}],
)
async def test_a_broker_makes_no_store_for_settings_that_cannot_be(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Found: it was made, and left behind, where only the node found what was wrong."""
    keyring = NetworkKeyring([SECRET, b"2" * 32])
    with pytest.raises(ConfigError):
        async with durable.serve(tmp_path / "data", keyring=keyring, **settings):
            raise AssertionError
    assert not (tmp_path / "data").exists()


async def test_a_broker_joins_with_the_keys_that_its_settings_name(tmp_path: Path) -> None:
    secret = format_network_secret(SECRET)
    async with durable.serve(
        tmp_path, network_secret=secret, zeroconf=False, transport=Nowhere()
    ) as broker:
        assert broker.node is not None
    both: dict[str, Any] = {"keyring": NetworkKeyring([SECRET]), "network_secret": secret}
    with pytest.raises(ConfigError, match="keyring and network_secret: give one source"):
        async with durable.serve(tmp_path / "other", **both):
            raise AssertionError
    assert not (tmp_path / "other").exists()


async def test_an_exception_of_the_block_leaves_it_unchanged() -> None:
    error = KeyError(1)
    with pytest.raises(KeyError) as caught:
        async with join(Nowhere()):
            raise error
    assert caught.value is error


async def test_a_group_of_the_block_is_not_taken_for_ours() -> None:
    error = KeyError(1)
    with pytest.raises(ExceptionGroup) as caught:
        async with join(Nowhere()):
            raise ExceptionGroup("mine", [error])
    assert (caught.value.message, caught.value.exceptions) == ("mine", (error,))


@pytest.mark.parametrize("clusters", [5, None, b"x", [5], [[]], ["x", b"x"]])
async def test_what_is_no_cluster_is_refused_by_its_name(clusters: Any) -> None:
    with pytest.raises(mesh.InvalidName, match=r"^cluster"):
        async with mesh.join(clusters, keyring=NetworkKeyring([SECRET])):
            raise AssertionError("not reached")


@pytest.mark.parametrize("wrong", [5, None, b"x", [], {}])
async def test_verbs_refuse_what_is_no_name(wrong: Any) -> None:
    async with join(Nowhere()) as node:
        for verb in (node.request, node.broadcast, node.publish):
            with pytest.raises(mesh.InvalidName):
                await verb(wrong, b"")
        for told in (node.gather, node.publish_nowait):
            with pytest.raises(mesh.InvalidName):
                told(wrong, b"")
        with pytest.raises(mesh.InvalidName):
            await node.publish_many(wrong, [b""])
        with pytest.raises(mesh.InvalidName):
            await node.publish_many(wrong, [])
        with pytest.raises(mesh.InvalidName):
            await node.wait_subscribers(wrong)
        with pytest.raises(mesh.InvalidName):
            node.open_tunnel(wrong)


async def test_publishing_several_of_which_there_are_none_is_checked_all_the_same() -> None:
    """Found: of any topic, and on a node that had left, it was fine."""
    async with join(Nowhere()) as node:
        await node.publish_many("t", [])
        await node.publish_many("t", [], headers=[])
        with pytest.raises(ValueError, match="1 headers for 0 payloads"):
            await node.publish_many("t", [], headers=[b"\x80"])
        assert node.statistics().publishing.published == 0
    with pytest.raises(mesh.NodeClosed):
        await node.publish_many("t", [])


async def test_verbs_refuse_numbers_and_headers_that_are_none_and_take_all_others() -> None:
    async with join(Nowhere()) as node:
        with pytest.raises(TypeError, match="count: want int"):
            await node.wait_members("y", count="3")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="count: want int"):
            await node.wait_subscribers("t", count="3")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="headers: '\\\\ud800'"):
            await node.publish("t", b"", headers={"\ud800": 1})
        for wrong in (None, "3", 1.5, True):
            with pytest.raises(TypeError, match="waiting_bytes: want int"):
                await node.wait_sent(wrong)  # type: ignore[arg-type]
        with trio.fail_after(5), pytest.raises(ValueError, match="waiting_bytes: want 0 to"):
            await node.wait_sent(-1)
        await node.wait_sent(0)
        node.open_tunnel("y", timeout=10**400)
        assert [one async for one in node.gather("y", b"", timeout=10**400)] == []
        with trio.move_on_after(0) as scope:
            await node.request("y", b"", timeout=10**400)
        assert scope.cancelled_caught


async def test_blocks_say_how_they_are_entered() -> None:
    """Python's words named a class of contextlib for a join, and said nothing of `async with`."""
    async with join(Nowhere()) as node:
        blocks: dict[str, Any] = {
            "mesh.join": join(Nowhere()), "node.subscribe": node.subscribe("t"),
            "node.open_tunnel": node.open_tunnel("y"), "durable.serve": durable.serve("nowhere"),
        }  # fmt: skip
        for call, block in blocks.items():
            await only_async_with(call, block)


async def test_what_was_not_entered_says_so_to_who_uses_it() -> None:
    """Found: 'Opening' object has no attribute 'send'."""
    async with join(Nowhere()) as node:
        tunnel: Any = node.open_tunnel("y")
        with pytest.raises(
            AttributeError, match=r"^no attribute 'send': first get the tunnel from `async with"
        ):
            await tunnel.send(b"x")
        with pytest.raises(
            TypeError, match=r"^want `async with node\.open_tunnel.*, got `async for`"
        ):
            async for _ in tunnel:
                raise AssertionError("entered")
    broker: Any = durable.serve("nowhere")
    with pytest.raises(
        AttributeError, match=r"^no attribute 'node': first get the broker from `async with"
    ):
        _ = broker.node


async def test_a_join_is_no_node_and_is_entered_once() -> None:
    block: Any = join(Nowhere())
    with pytest.raises(AttributeError, match=r"^no attribute 'request': .*`async with mesh\.join"):
        await block.request("y", b"")
    async with block:
        pass
    with pytest.raises(RuntimeError, match=r"^entered twice: .*`async with mesh\.join"):
        await block.__aenter__()


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [("seeds", "127.0.0.1:4"), ("seeds", "nats://127.0.0.1:4222"), ("dns", "nodes:5600")],
)
async def test_no_address_is_refused_by_its_setting_before_there_is_a_context(
    setting: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: the text did not say which setting, and libzmq's context was never closed."""
    monkeypatch.setattr("mesh.joining.ZmqTransport", lambda *_: pytest.fail("made"))
    settings: dict[str, Any] = {setting: wrong, "zeroconf": False}
    with pytest.raises(ConfigError, match=f"^{setting}: '{wrong}' is not an endpoint"):
        async with mesh.join("x", keyring=NetworkKeyring([SECRET]), **settings):
            raise AssertionError("not reached")


async def test_a_keyring_beside_another_source_of_keys_is_one_too_many() -> None:
    keyring = NetworkKeyring([bytes(32)])
    with pytest.raises(ConfigError, match="keyring and keys_dir: give one source"):
        async with mesh.join("shop", keyring=keyring, keys_dir="keys"):
            pass


async def test_what_cannot_start_says_so_itself() -> None:
    error = mesh.ConfigError("for the test")
    with pytest.raises(mesh.ConfigError) as caught:
        async with join(Nowhere(refuses=error)):
            raise AssertionError("not reached")
    assert caught.value is error


async def test_a_node_that_nobody_can_dial_lives() -> None:
    """It crashed: there was no port for finders to tell."""
    async with join(Nowhere(told=())) as node:
        await trio.testing.wait_all_tasks_blocked()
        assert node.endpoints == ()


async def test_a_failure_of_ours_cancels_the_block() -> None:
    transport = Nowhere()
    with pytest.raises(mesh.NodeCrashed) as caught:
        async with join(transport):
            transport.fail()
            await trio.sleep_forever()
    assert caught.value.__cause__ is transport.error


async def test_a_failure_of_ours_and_one_of_the_block_are_both_told() -> None:
    transport, error = Nowhere(), KeyError(1)
    with pytest.raises(mesh.NodeCrashed) as caught:
        async with join(transport):
            transport.fail()
            try:
                await trio.sleep_forever()
            finally:
                raise error
    both = caught.value.__cause__
    assert isinstance(both, BaseExceptionGroup)
    assert both.exceptions == (transport.error, error)


async def test_a_failure_of_ours_while_all_is_cancelled_is_told() -> None:
    transport = Nowhere()
    with pytest.raises(mesh.NodeCrashed) as caught, trio.CancelScope() as scope:
        async with join(transport):
            transport.fail()
            scope.cancel()
    assert caught.value.__cause__ is transport.error


def test_the_keyring_is_the_one_that_joining_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Whoever runs this may have a network.
    monkeypatch.delenv("MESH_NETWORK_SECRET_FILE", raising=False)
    assert keyring_of({}) is None
    assert keyring_of({"zeroconf": False}) is None
    found = keyring_of({"network_secret": format_network_secret(SECRET)})
    assert found is not None
    assert found.own("broker") == (derive(SECRET, "broker"),)
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", "gone")
    with pytest.raises(KeyMissing, match="gone"):
        keyring_of({})
    (tmp_path / "keys").mkdir()
    found = keyring_of({"keys_dir": "keys"})  # A keyword replaces the variable.
    assert found is not None
    assert found.trusted("broker") == ()
    with pytest.raises(ConfigError, match="unknown setting"):
        keyring_of({"network_sceret": "x"})


class CtrlC(trio.abc.Instrument):
    """Presses Ctrl-C before the step with this number, counting those of all tasks."""

    def __init__(self, step: int) -> None:
        self.steps_left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_leaves_a_join_as_it_is_whenever_it_comes() -> None:
    """Found: TrioInternalError, if it came as the node's tasks had started, and these were taken for a crash."""

    async def main() -> None:
        async with join(Nowhere()):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for step in count(1):
            ctrl_c = CtrlC(step)
            with suppress(KeyboardInterrupt):
                trio.run(main, instruments=[ctrl_c])
            if ctrl_c.steps_left > 0:
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert step > 20, "the whole life of a node"


class ImpatientAtTheEnd(Nowhere):
    """A transport that presses Ctrl-C when it is to end."""

    async def run(
        self, receiver: Receiver, *,
        task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        try:
            await super().run(receiver, task_status=task_status)
        finally:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_the_block_and_again_while_the_node_leaves_is_one() -> None:
    """Found: a group of two, which `except KeyboardInterrupt` does not catch."""

    async def main() -> None:
        async with join(ImpatientAtTheEnd()):
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(main)
    finally:
        signal.signal(signal.SIGINT, before)
