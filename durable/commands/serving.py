"""`mesh-broker serve`: runs a broker until SIGTERM, Ctrl-C, or a failing disk."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import trio

from mesh.commands.options import Commands, add_joining, count, path, settings
from mesh.commands.terminal import StopSignal, print_stderr, until_signal
from mesh.errors import ConfigError, OutOfRange
from mesh.loading import INTERRUPTED

from ..broker.broker import Broker, check_start
from ..broker.collecting import Collector
from ..broker.running_vhost import RunningVhost
from ..config import BrokerConfig
from ..log.config import LogConfig
from ..protocol.parts import PART_OVERHEAD_BYTES
from .findings import as_json, findings, summary
from .options import BROKER, size, sizes

DONE, FAILED = 0, 1
STATUSES = {signal.SIGTERM: DONE, signal.SIGINT: INTERRUPTED}
POLL_S = 0.2
"""How often to check whether a store has stopped."""
LAST_ANSWERS_S = 1.0
"""How long clients still get the answer that the store has stopped."""
SEGMENT_PER_RESERVE = 8

LOG_SIZES = {
    "--segment-size": (
        "segment_bytes",
        "size of a segment file, preallocated; at least two per vhost",
    ),
    "--reserve-size": ("reserve_bytes", "space reserved in each segment for acks and definitions"),
    "--free-min": ("free_bytes_min", "space to leave free in the file system for others"),
    "--pending-size": ("pending_bytes_max", "limit of data waiting in memory to be written"),
}
BROKER_SIZES = {
    "--recent-size": ("recent_bytes", "limit of recent messages kept in memory, per vhost"),
    "--memory-size": ("memory_bytes", "limit of messages in queues kept only in memory, per vhost"),
    "--capture-size": ("capture_bytes", "limit of captured messages waiting to be stored, per pattern"),
    "--checkpoint-size": ("checkpoint_bytes", "write a checkpoint after so many bytes of settlements"),
    "--window-size": (
        "tunnel_window_bytes", "limit of a publisher's messages in flight, and of one message",
    ),
}  # fmt: skip
COUNTS = {
    "--publishers-max": ("publishers_max", "limit of publishers remembered per vhost"),
    "--queues-max": ("queues_max", "limit of queues and streams per vhost"),
    "--checkpoint-records": (
        "checkpoint_records",
        "write a checkpoint after so many records of any kind",
    ),
}
OPTIONS = {name: option for option, (name, _) in {**LOG_SIZES, **BROKER_SIZES, **COUNTS}.items()}


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "serve", help="run a broker",
        description="Run a broker on a data directory until SIGTERM (exit status 0) or Ctrl-C (130). "
        "It prints on stderr\nwhat recovery found, then `ready, CLUSTER at ADDRESS ...`; with --json also "
        "one line per event on\nstdout: {\"event\": \"recovered\" | \"ready\" | \"failed\" | \"stopped\", ...}.\n"
        "If the disk fails, it exits with status 1 and should be restarted: a failed sync must not be "
        "repeated,\nand a restart reads what is really on the disk.",
    )  # fmt: skip
    command.add_argument(
        "--data", required=True, type=path, metavar="DIR",
        help="data directory; created if missing, else empty or a broker's",
    )  # fmt: skip
    command.add_argument(
        "--json", action="store_true", help="print events on stdout, one JSON document per line"
    )
    command.add_argument(
        "--keep-going", action="store_true",
        help="keep running after a disk failure: refuse to store, deliver what can be read",
    )  # fmt: skip
    command.add_argument(
        "--encrypt", action="store_true",
        help="encrypt new data, with the keys used for joining; data that is already encrypted "
        "needs these keys in any case",
    )  # fmt: skip
    add_joining(command, BROKER)
    _add_settings(command)
    command.set_defaults(run=serve)


def _add_settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("storage (sizes such as 64M, 1G)")
    for table, defaults in ((LOG_SIZES, LogConfig()), (BROKER_SIZES, BrokerConfig())):
        for option, (name, text) in table.items():
            default = sizes(getattr(defaults, name))
            group.add_argument(
                option, dest=name, type=size, metavar="SIZE", help=f"{text} (default {default})"
            )
    for option, (name, text) in COUNTS.items():
        default = getattr(BrokerConfig(), name)
        group.add_argument(
            option, dest=name, type=count, metavar="N", help=f"{text} (default {default})"
        )


def config_of(args: argparse.Namespace, chunk_bytes: int) -> BrokerConfig:
    """Return the broker's settings. `chunk_bytes` is the node's: a message of that size fits into any window.

    Raises ConfigError.
    """
    log, given = log_config(args), _given(args, {**BROKER_SIZES, **COUNTS})
    room = log.segment_bytes - log.reserve_bytes
    is_window_given = "tunnel_window_bytes" in given
    window = given.setdefault(
        "tunnel_window_bytes", min(BrokerConfig().tunnel_window_bytes, room // 2)
    )
    most_window = room - log.kept_for_snapshot_bytes_max
    if window > most_window:
        raise ConfigError(
            f"--window-size is {window}: a message of this size does not fit into a segment, which has "
            f"room for {most_window} bytes besides the space kept for acks, definitions and a snapshot"
        )
    least_window = chunk_bytes + PART_OVERHEAD_BYTES
    if window < least_window and not is_window_given and room // 2 < least_window:
        least = 2 * least_window + (args.reserve_bytes or _reserve(least_window * 3))
        raise ConfigError(
            f"--segment-size is {log.segment_bytes}: want at least {least}, which has room for two "
            f"messages of chunk_bytes, {chunk_bytes}, with their overhead, besides the reserve"
        )
    if window < least_window:
        raise ConfigError(
            f"--window-size is {window}: want at least {least_window}, which is chunk_bytes and the "
            "overhead of a message"
        )
    with _as_options():
        return BrokerConfig(log=log, encrypt=args.encrypt, **given)


def log_config(args: argparse.Namespace) -> LogConfig:
    """Return the log's settings, with a reserve in proportion to its segments. Raises ConfigError."""
    given = _given(args, LOG_SIZES)
    if "segment_bytes" in given and "reserve_bytes" not in given:
        given["reserve_bytes"] = _reserve(given["segment_bytes"])
    with _as_options():
        return LogConfig(**given)


@contextmanager
def _as_options() -> Iterator[None]:
    """Name the option, not the setting, in OutOfRange errors of the block."""
    try:
        yield
    except OutOfRange as error:
        raise OutOfRange(OPTIONS[error.setting], error.value, error.want) from None


def _reserve(segment_bytes: int) -> int:
    return min(LogConfig().reserve_bytes, segment_bytes // SEGMENT_PER_RESERVE // 8 * 8)


def _given(args: argparse.Namespace, table: dict[str, tuple[str, str]]) -> dict[str, Any]:
    values = {name: getattr(args, name, None) for name, _ in table.values()}
    return {name: value for name, value in values.items() if value is not None}


async def serve(args: argparse.Namespace) -> int:
    # Report everything that is wrong with the settings before a store is created.
    node_config, keyring = check_start(args.data, args.cluster, None, settings(args))
    config = config_of(args, node_config.chunk_bytes)
    raise_descriptor_limit()
    collector = Collector(own_process=True)
    broker = Broker(
        args.data, cluster=args.cluster, config=config, keyring=keyring, collector=collector
    )
    vhosts: list[RunningVhost] = []
    failed: set[str] = set()
    # Signals set `stop` instead of raising KeyboardInterrupt, which may come between any two instructions: a
    # half-changed state would then be written to the disk.
    with collector.serving(), until_signal(STATUSES) as stop, stop.scope:
        async with broker:  # A signal may interrupt opening it, which may take long, or for ever.
            # From here on a signal cancels only the wait in `_run`: a scope around the broker would cancel draining.
            stop.scope = trio.CancelScope()
            if stop.status is None:
                await _run(broker, args, stop, failed)
            vhosts = broker.all_hosted()
    _report_failed(vhosts, args, failed)  # A store may also have failed while draining.
    kept = args.keep_going or not failed
    status = stop.status if stop.status is not None and kept else FAILED
    if status != FAILED:
        print_stderr("stopped")
    _event(args, "stopped", status=status)
    return status


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard one. With the usual 1,024, a stranger without a key could
    take all of them by silent connections, each kept for the time of a handshake, and keep every client out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # The limit stays as it was.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(
    broker: Broker, args: argparse.Namespace, stop: StopSignal, failed: set[str]
) -> None:  # fmt: skip
    """Serve on the mesh until a signal, or until a store has stopped."""
    for running in broker.all_hosted():
        _report_recovery(running, args)
    async with broker.on_mesh(**settings(args)) as node:
        print_stderr(f"ready, {args.cluster} at {' '.join(node.endpoints)}")
        _event(args, "ready", cluster=args.cluster, endpoints=list(node.endpoints), pid=os.getpid())
        with stop.scope:
            await _until_failed(broker, args, failed)


def _report_recovery(running: RunningVhost, args: argparse.Namespace) -> None:
    name, report = running.vhost.name, running.log.report
    for line in (summary(report), *findings(report)):
        print_stderr(f"vhost {name}: {line}")
    _event(args, "recovered", vhost=name, **as_json(report))


async def _until_failed(broker: Broker, args: argparse.Namespace, failed: set[str]) -> None:
    """Return when a store has stopped, unless --keep-going. Its log says why it stopped."""
    while True:
        _report_failed(broker.all_hosted(), args, failed)
        if failed and not args.keep_going:
            await trio.sleep(LAST_ANSWERS_S)
            return
        await trio.sleep(POLL_S)


def _report_failed(
    vhosts: Iterable[RunningVhost], args: argparse.Namespace, failed: set[str]
) -> None:
    """Report each stopped store once; `failed` holds the names of those reported, and is added to."""
    for one in vhosts:
        reason, name = one.log.failure, one.vhost.name
        if reason is not None and name not in failed:
            failed.add(name)
            _event(args, "failed", vhost=name, reason=reason)
            after = (
                "nothing is stored or settled there any more"
                if args.keep_going
                else "the broker exits"
            )
            print_stderr(f"vhost {name}: THE DISK FAILED: {reason}; {after}")


def _event(args: argparse.Namespace, event: str, **fields: Any) -> None:
    if args.json:
        print(json.dumps({"event": event, **fields}), flush=True)
