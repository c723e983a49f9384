"""Joining: from settings to a running node, for the length of an `async with` block."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from secrets import token_bytes
from typing import Any

import trio

from discovery.interfaces import host_id
from security.errors import SecurityError
from security.files import load_keyring
from security.keyring import Keyring

from .complaints import Complaints
from .config import KEY_SOURCES, MeshConfig
from .driver import Driver
from .entering import Life
from .errors import ConfigError, InvalidName, KeyMissing, NodeCrashed, TunnelBroken
from .finders import make_finders
from .listening import binds_of
from .node import Node
from .nursery import open_nursery
from .protocol.core import Core
from .protocol.dispatch import Dispatcher
from .protocol.hello import NAMES_MAX
from .protocol.identity import Identity
from .protocol.tunnel import TunnelEnd
from .service import Service
from .settings import key_source, load_config
from .transport import Transport
from .tunnel import Tunnel
from .workers import Workers
from .zmq_transport import ZmqTransport

logger = logging.getLogger("mesh")

Joins = str | Service | Sequence[str | Service]


class Joining(Life[Node]):
    """Made by `join`: the node's life is the `async with` block, which is entered once."""

    used_as = "async with mesh.join(...) as node"


def join(
    clusters: Joins, *, keyring: Keyring | None = None, transport: Transport | None = None,
    **settings: Any,
) -> Joining:  # fmt: skip
    """Be a member of one or more clusters for the length of the `async with` block.

    Leaving the block drains: what runs is finished within `drain_s`, then goodbye is said. An
    exception of the block leaves it unchanged.

    Args:
        clusters: a cluster's name, a Service, or several of them.
        keyring: instead of the settings about keys.
        transport: instead of ZeroMQ; for tests.
        settings: fields of MeshConfig; others come from `MESH_*` variables, then from mesh.toml.
    Raises:
        ConfigError, KeyMissing, InvalidName, RuntimeError (not in trio): before any socket opens.
        CannotBind: an address cannot be had; the text names it.
        NodeCrashed: one of our background tasks failed; the block was cancelled.
    """
    return Joining(_life(clusters, keyring, transport, settings))


@asynccontextmanager
async def _life(
    clusters: Joins, keyring: Keyring | None, transport: Transport | None,
    settings: Mapping[str, Any],
) -> AsyncGenerator[Node]:  # fmt: skip
    check_in_trio()
    joined = _listed(clusters)
    names = tuple(one.cluster if isinstance(one, Service) else one for one in joined)
    services = [one for one in joined if isinstance(one, Service)]
    config, keyring = _checked(names, keyring, settings)
    driver = _make_driver(config, keyring, services, transport)
    node = Node(driver, config)
    crash: BaseException | None = None
    beside = trio.CancelScope()

    async def background(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal crash, beside
        try:
            async with open_nursery() as inside:
                beside = inside.cancel_scope
                _serve(driver, config, services, inside)
                try:
                    await driver.run(task_status=_Shielding(beside, task_status))
                finally:
                    driver.close()
        except ConfigError:
            raise
        except Exception as error:
            crash = error
            nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:  # A failure, and beside it we were being cancelled.
            crash, cancelled = group.split(Exception)
            nursery.cancel_scope.cancel()
            if cancelled is not None:
                raise cancelled from None

    try:
        async with open_nursery() as nursery:
            await nursery.start(background)
            try:
                yield node
            finally:
                driver.end_if_forked()
                await _leave(driver)
                beside.cancel()
    except BaseException as error:
        if crash is None:
            raise
        both = BaseExceptionGroup("ours, then the block's", [crash, error])
        raise NodeCrashed("a background task of the node failed") from both
    if crash is not None:
        raise NodeCrashed("a background task of the node failed") from crash


class _Shielding:
    """Shields what runs beside the block from what cancels the block: goodbye is yet to be said.

    Before any of it has had a turn: a task that has seen the cancellation, and does not find it when
    it looks again, fails within trio. Cancelled by now, the join ends, and so does all it started.
    """

    def __init__(self, beside: trio.CancelScope, status: trio.TaskStatus[None]) -> None:
        self._beside, self._status = beside, status

    def started(self, value: None = None) -> None:
        self._status.started(value)
        self._beside.shield = trio.current_effective_deadline() != -math.inf


def _listed(clusters: Joins) -> list[str | Service]:
    if isinstance(clusters, str | Service):
        return [clusters]
    if isinstance(clusters, bytes) or not isinstance(clusters, Iterable):
        wanted = "want the name of a cluster, a Service, or several of them"
        raise InvalidName(f"clusters: {wanted}, got {clusters!r}")
    return list(clusters)


async def _leave(driver: Driver) -> None:
    """After a crash there is nothing to leave with."""
    if driver.running:
        with trio.CancelScope(shield=True):
            await driver.leave()
        driver.close()


def check_in_trio() -> None:
    """Raises RuntimeError: what trio says when asyncio calls it names nothing of ours."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError("mesh runs in trio: start the program with trio.run(main)")


def _make_driver(
    config: MeshConfig, keyring: Keyring, services: Sequence[Service],
    transport: Transport | None,
) -> Driver:  # fmt: skip
    """With its core, and the finders that the settings ask for."""
    identity = Identity(node=token_bytes(16), incarnation=_wall_us(), host=host_id())
    idempotent = tuple(name for service in services for name in service.idempotent_targets())
    if len(idempotent) > NAMES_MAX:
        raise ConfigError(
            f"{len(idempotent)} idempotent endpoints, at most {NAMES_MAX} in one node"
        )
    finders = make_finders(config, identity.node)
    # Last: what refuses the settings would leave its context open.
    driver = Driver(transport or ZmqTransport(config, keyring))
    driver.finders = finders
    driver.core = Core(
        identity, config, keyring, driver, Random(token_bytes(16)), _wall_us,
        idempotent=idempotent,
    )  # fmt: skip
    return driver


def _wall_us() -> int:
    return time.time_ns() // 1000


def keyring_of(settings: Mapping[str, Any]) -> Keyring | None:
    """The keyring that `join` uses with these settings; None when nobody has set any keys.

    For whoever needs the keys without joining, or before.

    Raises:
        ConfigError: as `join`.
        KeyMissing: what is set is no key that can be used.
    """
    source, _ = key_source(settings)
    return _load(source) if source else None


def check_settings(
    cluster: str, keyring: Keyring | None, settings: Mapping[str, Any]
) -> tuple[MeshConfig, Keyring]:
    """What `join` would refuse before it opens a socket, for whoever has something to open before.

    Args:
        settings: of `join`, without its other keywords.
    Raises:
        ConfigError, KeyMissing, InvalidName: as `join`.
    """
    config, keyring = _checked((cluster,), keyring, settings)
    binds_of(config, keyring)
    make_finders(config, bytes(16))
    return config, keyring


def _checked(
    names: tuple[str, ...], keyring: Keyring | None, settings: Mapping[str, Any]
) -> tuple[MeshConfig, Keyring]:
    if keyring is not None and (also := [name for name in KEY_SOURCES if settings.get(name)]):
        raise ConfigError(f"keyring and {also[0]} contradict, give one source of keys")
    config = load_config(names, settings, has_keyring=keyring is not None)
    keyring = keyring or _load({name: getattr(config, name) for name in KEY_SOURCES})
    _check_keys(keyring, names)
    return config, keyring


def _load(source: Mapping[str, Any]) -> Keyring:
    try:
        return load_keyring(**source)
    except SecurityError as error:
        raise KeyMissing(str(error)) from error


def _check_keys(keyring: Keyring, names: Sequence[str]) -> None:
    for name in names:
        try:
            keyring.own(name)
        except SecurityError as error:
            raise KeyMissing(str(error)) from error


def _serve(
    driver: Driver, config: MeshConfig, services: Sequence[Service], nursery: trio.Nursery
) -> None:
    """Put the services' handlers behind the core."""
    core = driver.core
    for service in services:
        workers = Workers(
            nursery, service.requests.functions, service.broadcasts.functions,
            answered=driver.answered,
        )  # fmt: skip
        workers.dispatcher = core.patterns.dispatchers[service.cluster] = Dispatcher(
            service.cluster, service.requests.endpoints, service.broadcasts.endpoints,
            concurrency=service.concurrency or config.concurrency,
            queue_max=config.queue_requests, queue_bytes_max=config.queue_bytes,
            start=workers.start, touched=core.touch,
        )  # fmt: skip
        core.patterns.tunnels.endpoints[service.cluster] = service.tunnels.endpoints
    handlers = {service.cluster: service.tunnels.functions for service in services}
    complaints = Complaints()

    def opened(end: TunnelEnd, cluster: str, endpoint: str) -> None:
        tunnel = Tunnel(driver, end)
        driver.handling.add(tunnel)
        core.patterns.tunnels.handlers += 1
        nursery.start_soon(_run_tunnel, handlers[cluster][endpoint], tunnel, driver, complaints)

    driver.tunnel_opened = opened


async def _run_tunnel(handler: Any, tunnel: Tunnel, driver: Driver, complaints: Complaints) -> None:
    try:
        async with tunnel:
            await handler(tunnel)
    except* TunnelBroken:
        pass  # The other end knows why; the counters know that.
    except* Exception as group:
        # Of an exception that came without a group, Python makes one here, without a text.
        error = group if group.message else group.exceptions[0]
        complaints.log(f"tunnel handler of {tunnel.target!r}", error)
    finally:
        driver.handling.discard(tunnel)
        driver.core.patterns.tunnels.handlers -= 1
