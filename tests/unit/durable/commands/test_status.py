"""What `mesh-broker status` makes of the numbers."""

from __future__ import annotations

from typing import Any

from durable.commands.status import _lines, _within_us

QUIET = {"published_per_s": 0.0, "delivered_per_s": 0.0, "acked_per_s": 0.0}
QUEUE = {
    "ready": 3, "unacked": 1, "dead": 0, "size_bytes": 2048, "consumers": 2, "oldest_s": 61.0,
    "durability": "disk", "dropped": {}, "confirm_us": {},
}  # fmt: skip
STREAM = {
    "start": 2, "end": 9, "size_bytes": 70, "oldest_s": 7.0, "cursors": {"a": 3}, "missed": 5,
    "confirm_us": {},
}  # fmt: skip


def lines(**changed: Any) -> list[str]:
    found: dict[str, Any] = {
        "queues": {"jobs": {**QUEUE, **QUIET}}, "streams": {"audit": {**STREAM, **QUIET}},
        "intake": {"received": 7, "received_bytes": 10, "duplicates": 1, "refused": 2, "dropped": 3},
        "hidden": 0, "written_per_received": 1.25, "confirm_us": {},
        "log": {
            "durable_end": 8, "segments": 1, "commits": 4, "full": False, "overdue_s": 0,
            "failure": None,
        },
        "lost": 0,
    }  # fmt: skip
    return list(_lines({**found, **changed}))


def test_everything_that_is_asked_of_it_is_shown() -> None:
    queue, stream, received, log = lines()
    assert queue == "queue jobs: 3 ready, 1 unacked, 2.0 KiB, 2 consumers, oldest 61 s, disk"
    assert stream == "stream audit: offsets 2 to 8, 70 B, oldest 7 s, 1 cursors, 5 missed"
    assert "duplicates 1, refused 2, routed nowhere 3" in received
    assert "1.25 bytes written per byte received" in log


def test_what_waits_to_be_dead_lettered_is_shown() -> None:
    """It is neither ready nor unacked, and on a full disk it waits."""
    found = lines(queues={"jobs": {**QUEUE, **QUIET, "dead": 4}})
    assert found[0].startswith("queue jobs: 3 ready, 1 unacked, 4 to be dead-lettered, 2.0 KiB")


def test_what_was_dropped_is_shown_by_reason() -> None:
    dropped = {"delivery_limit": 96, "expired": 3}
    found = lines(queues={"jobs": {**QUEUE, **QUIET, "dropped": dropped}})
    assert found[0].endswith("61 s, disk; dropped: 96 delivery_limit, 3 expired")


def test_an_empty_stream_has_no_last_offset() -> None:
    found = lines(
        streams={"audit": {**STREAM, **QUIET, "end": 2, "size_bytes": 0, "oldest_s": None}}
    )
    assert found[1] == "stream audit: empty, the next offset is 2, 1 cursors, 5 missed"


def test_rates_are_shown_when_something_happened() -> None:
    busy = {"published_per_s": 20.0, "delivered_per_s": 0.0, "acked_per_s": 0.25}
    found = lines(queues={"jobs": {**QUEUE, **busy}}, streams={"audit": {**STREAM, **busy}})
    assert found[0].endswith("disk; per second: 20.0 published, 0.0 delivered, 0.2 acked")
    assert found[1].endswith("missed; per second: 20.0 published, 0.0 delivered")


def test_how_long_it_takes_to_be_on_disk() -> None:
    counts = {"512": 30, "4096": 69, "128": 0, "1024": 900, "65536": 1}
    assert [_within_us(counts, share) for share in (0.03, 0.5, 0.99, 1.0)] == [
        512, 1024, 4096, 65536,
    ]  # fmt: skip
    (shown,) = [line for line in lines(confirm_us=counts) if line.startswith("time to disk")]
    assert shown == "time to disk: half of all records within 1.024 ms, 99 % within 4.096 ms"


def test_what_a_queue_and_a_stream_cost_is_shown() -> None:
    stored = {"confirm_us": {"1024": 1, "2048": 1}, "written_per_received": 1.5}
    found = lines(
        queues={"jobs": {**QUEUE, **QUIET, **stored}},
        streams={"audit": {**STREAM, **QUIET, **stored}},
    )
    cost = "half of all records within 1.024 ms, 99 % within 2.048 ms, 1.50 bytes written per byte received"
    assert found[0].endswith(f"disk; time to disk: {cost}")
    assert found[1].endswith(f"missed; time to disk: {cost}")
