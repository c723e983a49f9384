"""Role processes: started, spoken to in lines of JSON, ended by their id, always within a time.

    with Troupe() as troupe:
        pull = troupe.start("raw_pull", {...})      ->  python -m bench.roles.raw_pull
        pull.ready                                  <-  {"say": "ready", "endpoint": ...}
        pull.tell("run", count=1000)                ->  {"do": "run", "count": 1000}
        pull.hear()                                 <-  {"say": "done", ...}
                                                    end of the block: stdin closes, it leaves

Every role runs in its own process group, so Ctrl-C in the terminal reaches this process only,
which then ends them. A role whose parent dies is killed by the kernel (roles/stage.py).
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
    """A role died, was silent for too long or said that it failed; the notes have all stderr."""


class Role:
    """One child process. It begins with its settings, which go to it as its first line."""

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
        """It says when it is ready. Until now it has only loaded its code."""
        self._write(settings)

    def tell(self, do: str, **facts: Any) -> None:
        """Give an order. It is answered by one `hear`."""
        self._write({"do": do, **facts})

    def hear(self, timeout_s: float = ANSWER_S_MAX, beside: Sequence[Role] = ()) -> dict[str, Any]:
        """The role's next answer.

        Args:
            beside: roles without which it may never answer: one of them that fails ends the wait.

        Raises:
            MeasurementFailed: it, or one beside it, said that it failed, or died; or it took longer than
                `timeout_s`.
        """
        answer = self.poll(timeout_s, beside)
        if answer is None:
            raise MeasurementFailed(f"{self.name}: no answer within {timeout_s:.0f} s")
        return answer

    def poll(self, timeout_s: float, beside: Sequence[Role] = ()) -> dict[str, Any] | None:
        """As `hear`, but None when nothing was said within `timeout_s`."""
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
        """Keep what it has said for who hears it. Raises MeasurementFailed: it failed, or died."""
        chunk = os.read(self._stdout.fileno(), 1 << 16)
        self._pending += chunk
        for line in self._pending.split(b"\n")[:-1]:
            self._decoded(line)
        if not chunk:
            raise MeasurementFailed(f"{self.name}: died")

    def _decoded(self, line: bytes) -> dict[str, Any]:
        """An answer. Raises MeasurementFailed: it says that it failed."""
        said: dict[str, Any] = json.loads(line)
        if said.pop("say") == "failed":
            raise MeasurementFailed(f"{self.name}: {said['why']}")
        return said

    def ask(self, do: str, **facts: Any) -> dict[str, Any]:
        self.tell(do, **facts)
        return self.hear()

    def last_words(self) -> str:
        """The end of what it wrote to stderr, to be put behind an error."""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(self._stderr.tell() - STDERR_TAIL_BYTES, 0))
        words = self._stderr.read().decode(errors="replace").strip()
        return f"\n{words}" if words else ""

    def dismiss(self) -> None:
        """Ask it to leave: its stdin ends."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def end(self, patience_s: float) -> None:
        """Wait for it, then stop it; returns when the process is gone, and all that it started."""
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
        """What it started ends by itself once it is alone, as Spark's Java does, which tidies up first; or is killed."""
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
            self.poll(0)  # Its last word says why, if it had one.
            raise MeasurementFailed(f"{self.name}: died") from None


class Troupe:
    """All roles of one measurement; the end of its block ends every one of them."""

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
        except BaseException as interrupt:  # Ctrl-C while they leave.
            self.abandon(interrupt)
            raise

    def abandon(self, error: BaseException) -> None:
        """End all of them now, whatever they are at: who waits has pressed Ctrl-C, or it has failed, which
        gets their stderr as notes."""
        if isinstance(error, MeasurementFailed):
            for role in self._roles:
                if words := role.last_words():
                    error.add_note(f"-- stderr of {role.name}:{words}")
        while self._roles:
            self._roles[-1].end(0)
            self._roles.pop()

    def start(self, name: str, settings: Mapping[str, Any], *, wait: bool = True) -> Role:
        """Start `bench.roles.<name>`; with `wait`, return once it said that it is ready."""
        role = self.summon(name)
        self.begin(role, settings)
        if wait:
            role.ready = role.hear(READY_S_MAX)
        return role

    def summon(self, name: str) -> Role:
        """Have a role's code loaded while others start; it waits for `begin`."""
        with interrupts_wait():
            role = Role(name)
            self._roles.append(role)
        return role

    def begin(self, role: Role, settings: Mapping[str, Any]) -> None:
        role.begin({**settings, "profile": self._profile})

    def end(self, role: Role) -> None:
        """Have one role leave before the others; returns when its process is gone."""
        role.end(LEAVE_S_MAX)
        self._roles.remove(role)  # Not before: Ctrl-C may come while it leaves.

    def end_all(self) -> None:
        """Have all of them leave, the last one started first."""
        while self._roles:
            self.end(self._roles[-1])

    def usage(self) -> dict[str, Usage]:
        """What each role has used until now, by `name` and place in the troupe."""
        return {
            f"{role.name}.{place}": Usage(**role.ask("usage"))
            for place, role in enumerate(self._roles)
        }


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM are heard at the end of the block: a child half begun nobody would end, and
    what is half written nobody would have."""
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
