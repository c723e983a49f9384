"""Memory of real processes, as the kernel counts it, under a load that would fill it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.config import MIB, MeshConfig
from tests.processes import Process, member
from tests.waiting import until

WINDOW_BYTES = MeshConfig(clusters=("writers",)).tunnel_window_bytes
WARM_BYTES, POURED_BYTES = 32 * MIB, 288 * MIB
GROWTH_MAX_KB = 32 * 1024
"""Sixteen windows, where there are less than one: room for what an allocator keeps."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' /proc")


@pytest.mark.slow
async def test_the_memory_of_both_ends_stays_flat_while_a_slow_reader_is_poured_into() -> None:
    with member("databases") as reader:
        seeds = [reader.ready["endpoint"]]
        with member("writers", seeds=seeds) as writer:
            writer.call("pour", cluster="databases/slow")

            async def poured(size_bytes: int) -> None:
                await until(lambda: reader.call("counts").get("slow bytes", 0) >= size_bytes, 50)

            await poured(WARM_BYTES)
            ends: list[Process] = [reader, writer]
            before_kb = [one.call("memory_kb")["VmRSS"] for one in ends]
            # The reader is the slow one.
            await until(lambda: reader.call("tunnels")[0]["unread"] > WINDOW_BYTES / 2)
            await poured(WARM_BYTES + POURED_BYTES)
            after_kb = [one.call("memory_kb")["VmHWM"] for one in ends]
    growths_kb = [after - before for before, after in zip(before_kb, after_kb, strict=True)]
    assert max(growths_kb) < GROWTH_MAX_KB, growths_kb
