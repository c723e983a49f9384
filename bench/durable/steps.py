"""CPU of single operations of the durable tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.steps import stepping, together

if TYPE_CHECKING:
    from bench.plan import Family


def family() -> list[Family]:
    return together(
        stepping("a record of 100 B encrypted", "encrypt", 20_000),
        stepping("a record of 100 B decrypted", "decrypt", 20_000),
        stepping("a record of 512 KiB encrypted", "encrypt_batch", 1_000),
        stepping("64 KiB by AEGIS-256", "aegis_256", 5_000),
        stepping("64 KiB by XChaCha20-Poly1305", "xchacha20_poly1305", 5_000),
        stepping("a snapshot of 10,000 queues", "queues_snapshot", 20),
    )
