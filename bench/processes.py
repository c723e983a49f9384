"""Role processes: child processes that are started, given orders as lines of JSON, and ended by their process ids.

    with Troupe() as troupe:
        pull = troupe.start("raw_pull", {...})      ->  python -m bench.roles.raw_pull
        pull.ready                                  <-  {"say": "ready", "endpoint": ...}
        pull.tell("run", count=1000)                ->  {"do": "run", "count": 1000}
        pull.hear()                                 <-  {"say": "done", ...}
                                                    end of the block: stdin closes, the role exits

Every wait has a time limit. Each role runs in a process group of its own, so Ctrl-C in the terminal reaches only this
process, which then ends the roles. The kernel kills a role whose parent has died (roles/stage.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from .machine import ROOT
from .usage import Usage, of_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

READY_S_MAX = 30.0
ANSWER_S_MAX = 180.0
LEAVE_S_MAX, LOOK_S = 5.0, 0.02
STDERR_TAIL_BYTES = 2000


class MeasurementFailed(Exception):
    """A role died, did not answer in time or reported a failure; the notes hold the end of each role's stderr."""


class Role:
    """One child process. It does nothing but load its code until it receives its settings, as its first line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pending = b""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.roles.{name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
            process_group=0,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.ready: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Send the settings; the role answers when it is ready."""
        self._write(settings)

    def tell(self, do: str, **facts: Any) -> None:
        """Send an order, which the role answers once; `hear` returns that answer."""
        self._write({"do": do, **facts})

    def hear(self, timeout_s: float = ANSWER_S_MAX, beside: Sequence[Role] = ()) -> dict[str, Any]:
        """Return the role's next answer.

        Args:
            beside: roles without which this one may never answer: if one of them fails, the wait ends.

        Raises:
            MeasurementFailed: this role or one of `beside` reported a failure or died, or `timeout_s` has passed.
        """
        answer = self.poll(timeout_s, beside)
        if answer is None:
            raise MeasurementFailed(f"{self.name}: no answer within {timeout_s:.0f} s")
        return answer

    def poll(self, timeout_s: float, beside: Sequence[Role] = ()) -> dict[str, Any] | None:
        """As `hear`, but return None if there is no answer within `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for role in (self, *beside):
                selector.register(role._stdout, selectors.EVENT_READ, role)
            while b"\n" not in self._pending:
                ready = selector.select(max(deadline_s - time.monotonic(), 0))
                if not ready:
                    return None
                for key, _ in ready:
                    key.data._read()
        line, _, rest = self._pending.partition(b"\n")
        answer = self._decoded(line)
        self._pending = rest
        return answer

    def _read(self) -> None:
        """Buffer the role's output for `hear`. Raises MeasurementFailed if the role reported a failure or died."""
        chunk = os.read(self._stdout.fileno(), 1 << 16)
        self._pending += chunk
        for line in self._pending.split(b"\n")[:-1]:
            self._decoded(line)
        if not chunk:
            raise MeasurementFailed(f"{self.name}: died")

    def _decoded(self, line: bytes) -> dict[str, Any]:
        """Decode an answer. Raises MeasurementFailed if it reports a failure."""
        said: dict[str, Any] = json.loads(line)
        if said.pop("say") == "failed":
            raise MeasurementFailed(f"{self.name}: {said['why']}")
        return said

    def ask(self, do: str, **facts: Any) -> dict[str, Any]:
        self.tell(do, **facts)
        return self.hear()

    def last_words(self) -> str:
        """Return the last STDERR_TAIL_BYTES of the role's stderr, for the notes of an error."""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(self._stderr.tell() - STDERR_TAIL_BYTES, 0))
        words = self._stderr.read().decode(errors="replace").strip()
        return f"\n{words}" if words else ""

    def dismiss(self) -> None:
        """Ask the role to exit, by closing its stdin."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def end(self, patience_s: float) -> None:
        """Wait `patience_s` for the role to exit, else stop it; return when all that it started are gone, too."""
        self.dismiss()
        for patience, stop in ((patience_s, self._process.terminate), (1.0, self._process.kill)):
            try:
                self._process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                stop()
        self._process.wait()
        self._end_orphans()
        self._stdout.close()
        self._stderr.close()

    def _end_orphans(self) -> None:
        """Wait until no process of the role's group is left, and kill the rest after LEAVE_S_MAX.

        They have time to exit by themselves: Spark's Java process notices that its parent is gone, and cleans up first.
        """
        deadline_s = time.monotonic() + LEAVE_S_MAX
        while of_group(self.pid):
            if time.monotonic() > deadline_s:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            time.sleep(LOOK_S)

    def _write(self, words: Mapping[str, Any]) -> None:
        try:
            self._stdin.write(json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            self.poll(0)  # Raises with the reason if the role reported one before it died.
            raise MeasurementFailed(f"{self.name}: died") from None


class Troupe:
    """All roles of one measurement; leaving the block ends every one of them."""

    def __init__(self, profile: str | None = None) -> None:
        self._roles: list[Role] = []
        self._profile = profile

    def __enter__(self) -> Troupe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self.abandon(error)
            for role in self._roles:
                role.dismiss()
            for role in self._roles:
                role.end(LEAVE_S_MAX)
        except BaseException as interrupt:  # Ctrl-C while the roles exit.
            self.abandon(interrupt)
            raise

    def abandon(self, error: BaseException) -> None:
        """End all roles at once: the measurement was interrupted or has failed.

        A MeasurementFailed gets the end of each role's stderr as notes.
        """
        if isinstance(error, MeasurementFailed):
            for role in self._roles:
                if words := role.last_words():
                    error.add_note(f"-- stderr of {role.name}:{words}")
        while self._roles:
            self._roles[-1].end(0)
            self._roles.pop()

    def start(self, name: str, settings: Mapping[str, Any], *, wait: bool = True) -> Role:
        """Start `bench.roles.<name>`; with `wait`, return once the role has answered that it is ready."""
        role = self.summon(name)
        self.begin(role, settings)
        if wait:
            role.ready = role.hear(READY_S_MAX)
        return role

    def summon(self, name: str) -> Role:
        """Start a role, which loads its code while others start and then waits for `begin`."""
        with interrupts_wait():
            role = Role(name)
            self._roles.append(role)
        return role

    def begin(self, role: Role, settings: Mapping[str, Any]) -> None:
        role.begin({**settings, "profile": self._profile})

    def end(self, role: Role) -> None:
        """End one role before the others; return when its process is gone."""
        role.end(LEAVE_S_MAX)
        self._roles.remove(role)  # Only now: Ctrl-C may come during `role.end`.

    def end_all(self) -> None:
        """End all roles, the last started first."""
        while self._roles:
            self.end(self._roles[-1])

    def usage(self) -> dict[str, Usage]:
        """Return what each role has used so far, by its name and its place among the roles."""
        return {
            f"{role.name}.{place}": Usage(**role.ask("usage"))
            for place, role in enumerate(self._roles)
        }


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block.

    Otherwise a child that is only half started would be ended by nobody, and a half-written file would remain.
    """
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for interrupt in heard[:1]:
            signal.raise_signal(interrupt)
