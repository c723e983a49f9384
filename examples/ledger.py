"""A second cluster, which counts the messages that are replayed to it, by topic.

python -m examples.ledger      runs until its stdin ends, then prints a line of JSON; settings: MESH_* variables
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress

import trio

import mesh


async def main() -> None:
    counts: Counter[str] = Counter()
    async with (
        mesh.join("ledger") as node,
        node.subscribe("replayed.>", when_full="block") as replayed,
        trio.open_nursery() as nursery,
    ):

        async def count() -> None:
            with suppress(mesh.NodeClosed):
                async for batch in replayed.batches():
                    counts[batch.topic] += len(batch.payloads)

        nursery.start_soon(count)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        replayed.close()  # What is waiting is still counted; the sender has finished.
    print(json.dumps(counts))


if __name__ == "__main__":
    trio.run(main)
