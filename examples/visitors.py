"""Visitors of the shop: their actions are published as they happen, by a program that knows no broker.

python -m examples.visitors      runs until it is ended; settings come from MESH_* variables
"""

from __future__ import annotations

import random
import time

import trio

import mesh

TICK_S = 0.02
RATES_PER_S = {"shop.visits.eu": 900, "shop.visits.us": 600, "shop.carts": 150, "shop.payments": 60}
SILENT = "shop.payments"
SILENT_FROM_S, SILENT_FOR_S = 11.0, 3.0
"""Payments are silent for this time, which the analysis has to find."""


def event(topic: str, number: int) -> bytes:
    return b'{"number": %d, "of": "%b", "basket": "espresso, cups"}' % (number, topic.encode())


async def main() -> None:
    draw, owed, sent = (
        random.Random(1),
        dict.fromkeys(RATES_PER_S, 0.0),
        dict.fromkeys(RATES_PER_S, 0),
    )
    async with mesh.join("visitors") as node:
        await node.wait_members("archive")
        began = before = time.monotonic()
        while True:
            now = time.monotonic()
            silent = SILENT_FROM_S <= now - began < SILENT_FROM_S + SILENT_FOR_S
            for topic, per_s in RATES_PER_S.items():
                owed[topic] += per_s * (now - before) * draw.uniform(0.7, 1.3)
                count, owed[topic] = divmod(owed[topic], 1)
                if silent and topic == SILENT:
                    continue
                for _ in range(int(count)):
                    await node.publish(topic, event(topic, sent[topic]))
                    sent[topic] += 1
            before = now
            await trio.sleep(TICK_S)


if __name__ == "__main__":
    trio.run(main)
