"""Commands of many requests in one write: commands that come during one pipeline form the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

PIPELINE_MAX = 500

Command = tuple[Any, ...]


class Pipelines:
    """Executes commands in a thread of its own, with a client of its own.

    Args:
        done: called with the commands of each pipeline once the server has answered all of them.
    """

    def __init__(self, client: Any, done: Callable[[Sequence[Command]], None]) -> None:
        self._client, self._done = client, done
        self._waiting: SimpleQueue[Command | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, command: Command) -> None:
        self._waiting.put(command)

    def _run(self) -> None:
        closed = False
        while not closed and (first := self._waiting.get()) is not None:
            commands = [first]
            while not self._waiting.empty() and len(commands) < PIPELINE_MAX:
                if (command := self._waiting.get()) is None:
                    closed = True
                    break
                commands.append(command)
            execute(self._client, commands)
            self._done(commands)

    def close(self) -> None:
        """Returns when the server has answered all."""
        self._waiting.put(None)
        self._thread.join()


def execute(client: Any, commands: Sequence[Command]) -> None:
    """Execute commands in one pipeline; return when the server has answered all of them."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    pipeline.execute()
