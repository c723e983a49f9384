from __future__ import annotations

from collections import Counter

from durable.queues.latencies import bucket_of, by_bound


def test_each_bucket_holds_what_took_less_than_its_bound() -> None:
    found = Counter(bucket_of(us) for us in (-5, 0, 1, 2, 3, 4, 1000, 1023, 1024, 10**18))
    assert by_bound(found) == {
        "1": 2, "2": 1, "4": 2, "8": 1, "1024": 2, "2048": 1, str(1 << 39): 1,
    }  # fmt: skip
