"""Chunks of a range: the same records whatever the window, and the same damage as `scan` finds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from durable.log.cipher import as_written
from durable.log.encryption import Encryption, cipher_of
from durable.log.header import SEGMENT_HEADER_BYTES
from durable.log.record import Kind, store_seed
from durable.log.scan import Damaged, Decrypt, Found, scan
from spark.capture.plan import NO_LIMIT, ByteRange
from spark.capture.segment import chunks
from spark.capture.stored import segment_file
from tests.captures import Captured
from tests.logs import LARGE, STORE_ID, encryption
from tests.stores import flip

SEED = store_seed(STORE_ID)


def found_by(
    path: Path, end_at: int, window_bytes: int, decrypt: Decrypt
) -> tuple[list[int], list[Damaged]]:
    wanted = ByteRange(
        str(path), SEED, SEGMENT_HEADER_BYTES, end_at, 0, NO_LIMIT, 1, None, frozenset()
    )
    ats: list[int] = []
    damaged: list[Damaged] = []
    with segment_file(str(path)) as file:
        for one in chunks(file, wanted, decrypt, window_bytes=window_bytes):
            if isinstance(one, Damaged):
                damaged.append(one)
            else:
                ats += [one.segment_at + at for at in one.at.tolist()]
                assert one.headers[one.at[0] :][:4] == b"MREC"
    return ats, damaged


@pytest.mark.parametrize("damage", [0, 1, 3])
@pytest.mark.parametrize("window_bytes", [64, 200, 1000, 1 << 20])
@pytest.mark.parametrize("use", [None, encryption()], ids=["plain", "encrypted"])
def test_any_window_finds_what_scan_finds(
    tmp_path: Path, window_bytes: int, damage: int, use: Encryption | None
) -> None:
    random = Random(damage)
    captured = Captured(tmp_path, LARGE, encryption=use)
    captured.declare("jobs", 1)
    for number in range(60):
        captured.publish(
            [1], [random.randbytes(random.choice([1, 30, 500]))] * random.randint(1, 3)
        )
        if number % 7 == 0:
            captured.settle(1, number, number + 1)
    path = captured.path / "msgs.0000000001"
    end_at = len(path.read_bytes().rstrip(b"\0")) // 8 * 8 + 8
    captured.close()
    for _ in range(damage):
        flip(path, random.randrange(SEGMENT_HEADER_BYTES, end_at - 1000))
    cipher = cipher_of(captured.path, None if use is None else use.keyring)
    decrypt = as_written if cipher is None else cipher.decrypt
    with segment_file(str(path)) as file:
        oracle = list(scan(file.pread, SEGMENT_HEADER_BYTES, end_at, seed=SEED, decrypt=decrypt))
    wanted = [
        one.at for one in oracle if isinstance(one, Found) and one.record.kind == Kind.PUBLISH
    ]
    assert len(wanted) >= 57
    assert found_by(path, end_at, window_bytes, decrypt) == (
        wanted,
        [one for one in oracle if isinstance(one, Damaged)],
    )
