"""One node of the mesh per worker process of Spark, kept from task to task.

A task runs in the process's main thread. The node runs in a thread of its own with trio's loop, so that
it stays a member between tasks, and handshakes and discovery are paid once. It leaves when no task has
used it for `IDLE_S`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

import mesh
from mesh.config import HEADERS_BYTES_MAX
from mesh.errors import MeshError
from security.errors import SecurityError

from .errors import Unreachable
from .options import SinkOptions

IDLE_S = 30.0
T = TypeVar("T")

_NODES: dict[Hashable, WorkerNode] = {}
# Global, because Spark gives a task nothing else that outlives it.
_LOCK = threading.Lock()


class WorkerNode:
    """A node in a thread of its own; tasks run functions on its loop with `call`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._users = 1
        """How many tasks use it; the one that creates it is the first."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._node: mesh.Node | None = None
        self._used_recently = True
        self.ended = False

    def start(self) -> None:
        """Join the mesh; blocks until the node is a member. Raises what prevented it."""
        threading.Thread(target=self._run, name="mesh", daemon=True).start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._run_node)
        except BaseException as error:
            self._failure = error
        finally:
            self.ended = True
            self._ready.set()

    async def _run_node(self) -> None:
        # Captured messages may have headers as large as any publisher was allowed.
        joining = {"headers_bytes_max": HEADERS_BYTES_MAX, **self._options.joining}
        async with mesh.join(self._options.cluster, **joining) as node:
            self._node, self._token = node, trio.lowlevel.current_trio_token()
            self._ready.set()
            while not self._end_if_idle():  # noqa: ASYNC110
                await trio.sleep(IDLE_S)  # Coarse, but nobody waits for the node to leave.

    def _end_if_idle(self) -> bool:
        """Return whether no task has used it since the last call; if so, no task will get it any more."""
        with _LOCK:
            self.ended = self._users == 0 and not self._used_recently
            self._used_recently = False
            return self.ended

    def acquire(self) -> None:
        self._users += 1
        self._used_recently = True

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `function(node, *args)` on the node's loop; blocks this thread."""
        assert self._node is not None
        return trio.from_thread.run(function, self._node, *args, trio_token=self._token)


@contextmanager
def worker_node(options: SinkOptions) -> Iterator[WorkerNode]:
    """Lend the process's node with these settings; it joins if there is none.

    Raises:
        Unreachable: it cannot join, for want of keys or of an address, for example.
    """
    # The process id is part of the key: a forked child has a copy of this table, but not the threads.
    key = (os.getpid(), options.cluster, repr(sorted(options.joining.items())))
    with _LOCK:
        worker = _NODES.get(key)
        if worker is not None and not worker.ended:
            worker.acquire()
        else:
            worker = None
    if worker is None:
        try:
            worker = WorkerNode(options)
            worker.start()
        except (MeshError, SecurityError, OSError) as error:
            raise Unreachable("the mesh", str(error)) from None
        with _LOCK:
            _NODES[key] = worker
    try:
        yield worker
    finally:
        with _LOCK:
            worker._users -= 1
