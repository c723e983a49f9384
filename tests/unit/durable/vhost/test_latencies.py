from __future__ import annotations

from durable.vhost.latencies import Latencies


def test_each_bucket_holds_what_took_less_than_its_bound() -> None:
    latencies = Latencies()
    for latency_us in (-5, 0, 1, 2, 3, 4, 1000, 1023, 1024, 10**18):
        latencies.add(latency_us)
    assert latencies.counts() == {
        "1": 2, "2": 1, "4": 2, "8": 1, "1024": 2, "2048": 1, str(1 << 39): 1,
    }  # fmt: skip
