"""A process that writes to a log as fast as it can and reports what is durable, until it is killed.

    python -m tests.log_writer DIRECTORY SEED

It prints a line for each confirmed append: log position and number. Bodies are derived from the number.
"""

from __future__ import annotations

import os
import sys
from random import Random

import trio

from durable.log.config import LogConfig
from durable.log.log import Log, open_log
from durable.log.real_disk import RealDisk
from tests.logs import acks, publish

CONFIG = LogConfig(segment_bytes=256 * 1024, reserve_bytes=16 * 1024, commit_bytes_max=64 * 1024)


def size_bytes(number: int) -> int:
    return 8 + number * 7919 % 20_000


async def main(directory: str, seed: int) -> None:
    random = Random(seed)

    async def write(log: Log, number: int) -> None:
        drafts = [publish(number, size_bytes(number))]
        if random.random() < 0.2:
            drafts.append(acks(7, number, number + 1))
        positions = await log.append(drafts)
        await log.wait_durable(positions[-1])
        os.write(1, f"{positions[0]} {number}\n".encode())
        limit.release()

    limit = trio.Semaphore(20)
    async with open_log(RealDisk(directory), CONFIG) as log, trio.open_nursery() as nursery:
        for number in range(log.end * 1000, 1 << 40):
            await limit.acquire()
            nursery.start_soon(write, log, number)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
