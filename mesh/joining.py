"""Joins the mesh: from settings to a running node, for the length of an `async with` block."""

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

from .config import KEY_SOURCES, MeshConfig
from .driver import Driver
from .entering import SingleUseBlock
from .errors import ConfigError, InvalidName, KeyMissing, NodeCrashed, TunnelBroken
from .failure_log import FailureLog
from .finders import make_finders
from .listening import binds_of
from .node import Node
from .nursery import open_nursery
from .protocol.core import Core
from .protocol.dispatch import Dispatcher
from .protocol.hello import IDEMPOTENT_MAX
from .protocol.identity import Identity
from .protocol.tunnel import TunnelEnd
from .service import Service
from .settings import key_source, load_config
from .transport import Transport
from .tunnel import Tunnel
from .workers import Workers
from .zmq_transport import ZmqTransport

logger = logging.getLogger("mesh")

Memberships = str | Service | Sequence[str | Service]


class Joining(SingleUseBlock[Node]):
    """Made by `join`: the node lives for the length of the `async with` block, which is entered once."""

    used_as = "async with mesh.join(...) as node"


def join(
    clusters: Memberships, *, keyring: Keyring | None = None, transport: Transport | None = None,
    **settings: Any,
) -> Joining:  # fmt: skip
    """Be a member of one or more clusters for the length of the `async with` block.

    Leaving the block drains: what runs is finished within `drain_s`, then the node says goodbye. An
    exception of the block is raised unchanged.

    Args:
        clusters: a cluster's name, a Service, or several of them.
        keyring: used instead of the key settings.
        transport: used instead of ZeroMQ, for tests.
        settings: fields of MeshConfig; others come from `MESH_*` variables, then from mesh.toml.
    Raises:
        ConfigError, KeyMissing, InvalidName, RuntimeError (not in trio): before any socket opens.
        CannotBind: an address cannot be bound; the text names it.
        NodeCrashed: one of our background tasks failed; the block was cancelled.
    """
    return Joining(_joined(clusters, keyring, transport, settings))


@asynccontextmanager
async def _joined(
    clusters: Memberships, keyring: Keyring | None, transport: Transport | None,
    settings: Mapping[str, Any],
) -> AsyncGenerator[Node]:  # fmt: skip
    check_in_trio()
    joined = _as_list(clusters)
    names = tuple(one.cluster if isinstance(one, Service) else one for one in joined)
    services = [one for one in joined if isinstance(one, Service)]
    config, keyring = _check_and_load(names, keyring, settings)
    driver = _make_driver(config, keyring, services, transport)
    node = Node(driver, config)
    crash: BaseException | None = None
    background_scope = trio.CancelScope()

    async def background(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal crash, background_scope
        try:
            async with open_nursery() as inner:
                background_scope = inner.cancel_scope
                _connect_handlers(driver, config, services, inner)
                try:
                    await driver.run(task_status=_ShieldingStatus(background_scope, task_status))
                finally:
                    driver.close()
        except ConfigError:
            raise
        except Exception as error:
            crash = error
            nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:  # A failure, while we were also being cancelled.
            crash, cancelled = group.split(Exception)
            if crash is not None:  # Without one, that which cancelled us is what leaves the block.
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
                background_scope.cancel()
    except BaseException as error:
        if crash is None:
            raise
        both = BaseExceptionGroup("error of the node, then that of the block", [crash, error])
        raise NodeCrashed("a background task of the node failed") from both
    if crash is not None:
        raise NodeCrashed("a background task of the node failed") from crash


class _ShieldingStatus:
    """Shields the node's own tasks from the cancellation of the block, so that the node can still say goodbye.

    This happens before any of these tasks has run: a task that has seen the cancellation, and does not find it when
    it checks again, fails within trio. If the join is already cancelled, it is not shielded, and ends with all
    that it started.
    """

    def __init__(self, background_scope: trio.CancelScope, status: trio.TaskStatus[None]) -> None:
        self._background_scope, self._status = background_scope, status

    def started(self, value: None = None) -> None:
        self._status.started(value)
        self._background_scope.shield = trio.current_effective_deadline() != -math.inf


def _as_list(clusters: Memberships) -> list[str | Service]:
    if isinstance(clusters, str | Service):
        return [clusters]
    if isinstance(clusters, bytes) or not isinstance(clusters, Iterable):
        wanted = "want the name of a cluster, a Service, or a list of these"
        raise InvalidName(f"clusters: {wanted}, got {clusters!r}")
    return list(clusters)


async def _leave(driver: Driver) -> None:
    """Leave the mesh, unless a crash has stopped the driver."""
    if driver.running:
        with trio.CancelScope(shield=True):
            await driver.leave()
        driver.close()


def check_in_trio() -> None:
    """Raise RuntimeError outside of trio: trio's own error, as from asyncio, would not mention the mesh."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError("mesh requires trio: start the program with trio.run(main)")


def _make_driver(
    config: MeshConfig, keyring: Keyring, services: Sequence[Service],
    transport: Transport | None,
) -> Driver:  # fmt: skip
    """Return a driver with its core, and the finders that the settings ask for."""
    identity = Identity(node=token_bytes(16), incarnation=_wall_us(), host=host_id())
    idempotent = tuple(name for service in services for name in service.idempotent_targets())
    if len(idempotent) > IDEMPOTENT_MAX:
        raise ConfigError(
            f"{len(idempotent)} idempotent endpoints, a node may have at most {IDEMPOTENT_MAX}"
        )
    finders = make_finders(config, identity.node)
    # Made last: if anything above refused the settings, the transport's context would stay open.
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
    """Return the keyring that `join` uses with these settings; None if no keys are set.

    For callers that need the keys without joining, or before.

    Raises:
        ConfigError: as `join`.
        KeyMissing: the keys that are set cannot be used.
    """
    source, _ = key_source(settings)
    return _load_keyring(source) if source else None


def check_settings(
    cluster: str, keyring: Keyring | None, settings: Mapping[str, Any]
) -> tuple[MeshConfig, Keyring]:
    """Check everything that `join` checks before it opens a socket, for callers that open something else before.

    Args:
        settings: those of `join`, without its other keywords.
    Raises:
        ConfigError, KeyMissing, InvalidName: as `join`.
    """
    config, keyring = _check_and_load((cluster,), keyring, settings)
    binds_of(config, keyring)
    make_finders(config, bytes(16))
    return config, keyring


def _check_and_load(
    names: tuple[str, ...], keyring: Keyring | None, settings: Mapping[str, Any]
) -> tuple[MeshConfig, Keyring]:
    if keyring is not None and (also := [name for name in KEY_SOURCES if settings.get(name)]):
        raise ConfigError(f"keyring and {also[0]}: give one source of keys, not several")
    config = load_config(names, settings, has_keyring=keyring is not None)
    keyring = keyring or _load_keyring(config.key_settings)
    _check_keys(keyring, names)
    return config, keyring


def _load_keyring(source: Mapping[str, Any]) -> Keyring:
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


def _connect_handlers(
    driver: Driver, config: MeshConfig, services: Sequence[Service], nursery: trio.Nursery
) -> None:
    """Connect the services' handlers to the core."""
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
            start=workers.start, request_flush=core.request_flush,
        )  # fmt: skip
        core.patterns.tunnels.endpoints[service.cluster] = service.tunnels.endpoints
    handlers = {service.cluster: service.tunnels.functions for service in services}
    failures = FailureLog()

    def opened(end: TunnelEnd, cluster: str, endpoint: str) -> None:
        tunnel = Tunnel(driver, end)
        driver.handled_tunnels.add(tunnel)
        core.patterns.tunnels.handlers += 1
        nursery.start_soon(_run_tunnel, handlers[cluster][endpoint], tunnel, driver, failures)

    driver.tunnel_opened = opened


async def _run_tunnel(handler: Any, tunnel: Tunnel, driver: Driver, failures: FailureLog) -> None:
    try:
        async with tunnel:
            await handler(tunnel)
    except* TunnelBroken:
        pass  # The other end knows why, and counters count it.
    except* Exception as group:
        # Python makes a group without text around a single exception.
        error = group if group.message else group.exceptions[0]
        failures.log(f"tunnel handler of {tunnel.target!r}", error)
    finally:
        driver.handled_tunnels.discard(tunnel)
        driver.core.patterns.tunnels.handlers -= 1
