"""One node of the mesh for each worker process of Spark, kept from task to task.

A task has the process's main thread; the node lives in a thread of its own with trio's loop, so that
it goes on being a member between tasks. Handshakes and discovery are paid once; when no task has
come for `IDLE_S`, it leaves.
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

_KEPT: dict[Hashable, WorkerNode] = {}
# What outlives a task can only be the process's own: Spark gives tasks nothing to keep.
_LOCK = threading.Lock()


class WorkerNode:
    """A node in a thread; `call` runs functions of the loop's, as long as somebody uses it."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._users = 1
        """Tasks that have it; who makes it is the first."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._node: mesh.Node | None = None
        self._used = True
        self.ended = False

    def start(self) -> None:
        """Join; blocks until it is a member, or raises why it is none."""
        threading.Thread(target=self._run, name="mesh", daemon=True).start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._live)
        except BaseException as error:
            self._failure = error
        finally:
            self.ended = True
            self._ready.set()

    async def _live(self) -> None:
        # Whoever published it was allowed to.
        joining = {"headers_bytes_max": HEADERS_BYTES_MAX, **self._options.joining}
        async with mesh.join(self._options.cluster, **joining) as node:
            self._node, self._token = node, trio.lowlevel.current_trio_token()
            self._ready.set()
            while not self._idle():  # noqa: ASYNC110
                await trio.sleep(IDLE_S)  # Looked at so seldom, and nobody waits for it.

    def _idle(self) -> bool:
        """Whether nobody has used it since this was asked last; then nobody gets it any more."""
        with _LOCK:
            self.ended = self._users == 0 and not self._used
            self._used = False
            return self.ended

    def taken(self) -> None:
        self._users += 1
        self._used = True

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `function(node, *args)` there; blocks this thread."""
        assert self._node is not None
        return trio.from_thread.run(function, self._node, *args, trio_token=self._token)


@contextmanager
def worker_node(options: SinkOptions) -> Iterator[WorkerNode]:
    """The process's node with these settings, joined when there is none.

    Raises:
        Unreachable: it cannot join: no keys, no address.
    """
    # The process, too: what a fork has copied has no thread any more.
    key = (os.getpid(), options.cluster, repr(sorted(options.joining.items())))
    with _LOCK:
        kept = _KEPT.get(key)
        if kept is not None and not kept.ended:
            kept.taken()
        else:
            kept = None
    if kept is None:
        try:
            kept = WorkerNode(options)
            kept.start()
        except (MeshError, SecurityError, OSError) as error:
            raise Unreachable("the mesh", str(error)) from None
        with _LOCK:
            _KEPT[key] = kept
    try:
        yield kept
    finally:
        with _LOCK:
            kept._users -= 1
