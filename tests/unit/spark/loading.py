"""Reading a log without Spark: as a plan, as rows, as messages to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from durable.log.encryption import Encryption
from spark.capture.options import check_batch, read_options
from spark.capture.plan import Work
from spark.capture.query import Query
from spark.capture.rows import SQL_TYPES, schema_of
from spark.capture.stored import StoredLog
from spark.errors import CaptureDamaged
from tests.captures import Captured, Message, of_rows, varied
from tests.stores import flip


def query(data: Path, **given: Any) -> Query:
    options = read_options({"path": str(data), **{name: str(one) for name, one in given.items()}})
    check_batch(options)
    return Query(options, schema_of(options, SQL_TYPES))


def planned(data: Path, **given: Any) -> list[Work]:
    found = query(data, **given)
    return found.works(found.select())


def rows_of(data: Path, work: Work, **given: Any) -> list[dict[str, Any]]:
    found = query(data, **given)
    batches = found.read(work, found.select().times)
    return [row for batch in batches for row in batch.to_pylist()]


def loaded(data: Path, **given: Any) -> list[Message]:
    return of_rows(row for work in planned(data, **given) for row in rows_of(data, work, **given))


def looked(captured: Captured) -> StoredLog:
    log = StoredLog(captured.path)
    log.refresh()
    return log


def check_one_bit_flipped(
    data: Path, seed: int, use: Sequence[Encryption | None] = (None,)
) -> None:
    """Check that one flipped bit loses only the record it is in, and is noticed, whichever bit it is."""
    captured = varied(data, 5, records=40, use=use)
    captured.close()
    random = Random(seed)
    file = random.choice(sorted(captured.path.glob("msgs.*"))[:-2])
    flip(file, random.randrange(64, len(file.read_bytes().rstrip(b"\0")) - 120))
    # The record may have been a declaration: its lanes then have other names.
    found, there = (
        Counter(one._replace(queue="", partition=0) for one in messages)
        for messages in (loaded(data, damaged="skip"), captured.messages)
    )
    lost = there - found
    assert not found - there
    assert len({one.time_us for one in lost}) <= 1, "one record"
    if lost:
        with pytest.raises(CaptureDamaged):
            loaded(data)
