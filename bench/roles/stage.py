"""A role's end of the pipe: first settings, then orders, each with one answer.

These are lines of JSON on stdin and stdout (see bench/processes.py). All other output to stdout is redirected
to stderr, so that a stray print cannot damage the protocol.
"""

from __future__ import annotations

import cProfile
import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

from bench.usage import own_usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

PR_SET_PDEATHSIG = 1

Order = dict[str, Any]


class Stage:
    """The settings and orders of a role, and its answers."""

    def __init__(self, orders: TextIO, answers: TextIO) -> None:
        self._orders, self._answers = orders, answers
        settings = orders.readline()
        if not settings:
            sys.exit()  # Never begun: a role that had to be started before this one failed.
        self.settings: dict[str, Any] = json.loads(settings)
        self.usage = own_usage
        """Returns the answer to the order "usage"."""

    def ready(self, **facts: Any) -> None:
        self._say("ready", facts)

    def done(self, **facts: Any) -> None:
        """Answer the current order."""
        self._say("done", facts)

    def failed(self, why: str) -> None:
        self._say("failed", {"why": why})

    def orders(self) -> Iterator[Order]:
        """Yield orders until the bench closes the pipe. The order "usage" is answered here."""
        while (order := self._next()) is not None:
            yield order

    async def orders_async(self) -> AsyncIterator[Order]:
        """As `orders`; it waits in a thread, so that the event loop keeps running."""
        import trio

        while True:
            order = await trio.to_thread.run_sync(self._next, abandon_on_cancel=True)
            if order is None:
                return
            yield order

    async def orders_beside(self, wait: Callable[[], Awaitable[None]]) -> AsyncIterator[Order]:
        """As `orders`, for any event loop: `wait` is awaited repeatedly while there is no order."""
        found: SimpleQueue[Order | None] = SimpleQueue()

        def read() -> None:
            while (order := self._next()) is not None:
                found.put(order)
            found.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            while found.empty():
                await wait()
            order = found.get()
            if order is None:
                return
            yield order

    def _next(self) -> Order | None:
        while line := self._orders.readline():
            order: Order = json.loads(line)
            if order["do"] != "usage":
                return order
            self.done(**self.usage().as_json())
        return None

    def _say(self, word: str, facts: dict[str, Any]) -> None:
        self._answers.write(json.dumps({"say": word, **facts}) + "\n")
        self._answers.flush()


def play(role: Callable[[Stage], None]) -> None:
    """Run a blocking role to its end."""
    die_with_parent()
    stage = take_stage()
    try:
        profiled(stage, lambda: role(stage))
    except Exception as error:
        traceback.print_exc()
        cause = first_cause(error)
        stage.failed(f"{type(cause).__name__}: {cause}")
        sys.exit(1)


def first_cause(error: BaseException) -> BaseException:
    """Return the first error inside the groups that nurseries have put around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def play_async(role: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a trio role to its end."""
    # Imported here, so that roles without trio do not pay for it in memory.
    import trio

    play(lambda stage: trio.run(role, stage))


def profiled(stage: Stage, run: Callable[[], None]) -> None:
    """Run `run`; with the setting `profile`, write cProfile's output into that directory."""
    directory = stage.settings.get("profile")
    if directory is None:
        run()
        return
    profile = cProfile.Profile()
    try:
        profile.runcall(run)
    finally:
        name = sys.modules["__main__"].__spec__
        role = name.name.rpartition(".")[2] if name else "role"
        profile.dump_stats(os.path.join(directory, f"{role}.{os.getpid()}.prof"))


def take_stage() -> Stage:
    """Keep the pipe to the bench for answers, and redirect fd 1 to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return Stage(sys.stdin, answers)


def leave_on_sigterm() -> None:
    """Make SIGTERM exit as after the last order, so that resources outside of the process are released."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def die_with_parent() -> None:
    """Make the kernel kill this process when the bench is killed; nothing else would."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
