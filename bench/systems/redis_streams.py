"""Redis streams through redis-py: XADD in pipelines, XREAD of many entries.

The append-only file is synced (appendfsync always) once before the replies to all commands that arrived together; sent
one at a time, each command has a sync of its own. strace counted 18 and 1,000 fdatasync for 1,000 messages (7.0.15).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from bench.loops import Loop
from bench.loops.loop import drive

from .redis import MODULES, PACKAGE, PROGRAM, server
from .redis_pipelines import Pipelines, execute
from .stored import StoredSystem
from .system import HOST, UNREAD_BYTES_MAX, Command, Place, Received, not_installed
from .threads import Receiving

STREAM = "bench"
FIELD = b"d"
READ_COUNT = 500
BLOCK_MS = 1000


LATE_REWRITE = ("--auto-aof-rewrite-min-size", str(4 * UNREAD_BYTES_MAX))
"""By default a child process rewrites the whole file from 64 MB on, which is a second of L5: on the same
cores and disk, outside the server process's own CPU time, and even after the server has been killed. Only a
long load needs that.
"""


def server_that_syncs(place: Place) -> Command:
    words = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
    return server(place, *words, *LATE_REWRITE)


class RedisStreams(StoredSystem):
    loop = "blocking"

    def __init__(self, *, each: bool = False) -> None:
        client = f"redis-py, hiredis, {'an XADD at a time' if each else 'pipelines'}"
        super().__init__("redis-streams", client, "batched fsync", each=each)

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package=PACKAGE, modules=MODULES)

    def commands(self, place: Place) -> list[Command]:
        return [server_that_syncs(place)]

    def requester(self, place: Place, loop: Loop, number: int, replied: Received) -> Appender:
        return Appender(place, replied)

    def producer(self, place: Place, loop: Loop) -> Producer:
        return OneByOne(place) if self.each else Producer(place)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Reader:
        return Reader(place, received)


class _Client:
    def __init__(self, place: Place) -> None:
        self._port = place.ports[0]

    async def setup(self) -> None:
        self._client: Any = import_module("redis").Redis(HOST, self._port)
        self._client.ping()

    async def teardown(self) -> None:
        self._client.close()


class Appender(_Client):
    def __init__(self, place: Place, replied: Received) -> None:
        super().__init__(place)
        self._replied = replied

    async def setup(self) -> None:
        await super().setup()
        self._pipelines = Pipelines(self._client, self._appended)

    async def request(self, payload: bytes) -> None:
        self._pipelines.put(append(payload))

    def _appended(self, commands: Sequence[Any]) -> None:
        drive(self._replied([command[-1] for command in commands]))

    async def teardown(self) -> None:
        self._pipelines.close()
        await super().teardown()


class Producer(_Client):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        execute(self._client, [append(payload) for payload in payloads])

    async def flush(self) -> None:
        return


class OneByOne(Producer):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self._client.execute_command(*append(payload))


class Reader(_Client):
    def __init__(self, place: Place, received: Received) -> None:
        super().__init__(place)
        self._received, self._receiving = received, Receiving()

    async def setup(self) -> None:
        await super().setup()
        self._receiving.start(self._entries, self._received)

    def _entries(self) -> Iterator[Sequence[bytes]]:
        last: bytes | str = "0"
        while True:
            found = self._client.xread({STREAM: last}, count=READ_COUNT, block=BLOCK_MS)
            if found:
                ((_, entries),) = found.items() if isinstance(found, dict) else found
                if len(entries) == 1 and isinstance(entries[0], list):
                    (entries,) = entries
                last = entries[-1][0]
                yield [entry[FIELD] for _, entry in entries]

    async def settle(self) -> None:
        return

    async def teardown(self) -> None:
        self._receiving.end()
        await super().teardown()


def append(payload: bytes) -> tuple[Any, ...]:
    return ("XADD", STREAM, "MAXLEN", "~", UNREAD_BYTES_MAX // len(payload), "*", FIELD, payload)


SYSTEMS = (RedisStreams(), RedisStreams(each=True))
