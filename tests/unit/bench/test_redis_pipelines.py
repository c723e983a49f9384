"""What is put into pipelines is sent, however soon they are closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.systems.redis_pipelines import Command, Pipelines


class Client:
    """A client and its pipeline: knows what has been executed."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def pipeline(self, **_: Any) -> Client:
        return self

    def execute_command(self, *command: Any) -> None:
        self.commands.append(command)

    def execute(self) -> None: ...


def test_what_has_gathered_leaves_before_the_end() -> None:
    """Found: what came while the last pipeline was under way was dropped when they were closed."""
    client, answered = Client(), list[Command]()

    def done(commands: Sequence[Command]) -> None:
        answered.extend(commands)
        if len(answered) == 1:  # In the thread, so all of this is there when it looks again.
            pipelines.put(("second",))
            pipelines.put(("third",))
            pipelines._waiting.put(None)  # As `close` does.

    pipelines = Pipelines(client, done)
    pipelines.put(("first",))
    pipelines._thread.join()
    assert answered == client.commands == [("first",), ("second",), ("third",)]
