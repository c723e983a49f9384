"""A second cluster, which counts what is replayed to it, topic by topic.

python -m examples.ledger      until its stdin ends; then one line of JSON. Settings: MESH_* variables
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
        replayed.close()  # What waits is counted, too: whoever sent it is done.
    print(json.dumps(counts))


if __name__ == "__main__":
    trio.run(main)
