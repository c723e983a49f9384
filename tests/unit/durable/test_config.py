"""A setting of a broker that cannot be is named, before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from durable.config import WINDOW_BYTES_MAX, BrokerConfig
from durable.log.config import LogConfig
from mesh.errors import ConfigError, OutOfRange


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recent_bytes", 0), ("publishers_max", 0), ("queues_max", 0), ("checkpoint_bytes", 0),
        ("checkpoint_records", 0), ("capture_bytes", 0), ("capture_bytes", WINDOW_BYTES_MAX + 1),
        ("tunnel_window_bytes", 0),
        ("tunnel_window_bytes", WINDOW_BYTES_MAX + 1), ("idle_s", 0), ("idle_s", 61),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(name: str, value: int) -> None:
    """Found: a broker took captures of 0 bytes, and ended when the first stream was declared."""
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"{name} is {value}, want"):
        BrokerConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"segment_bytes": 8}, "segment_bytes"), ({"segment_bytes": 1 << 32}, "segment_bytes"),
        ({"segment_bytes": 1025, "reserve_bytes": 1}, "segment_bytes"),
        ({"reserve_bytes": 1}, "reserve_bytes"), ({"reserve_bytes": -8}, "reserve_bytes"),
        ({"segment_bytes": 1024, "reserve_bytes": 520}, "reserve_bytes"),
        ({"retry_s": 0}, "retry_s"), ({"compaction_share_max": 0.6}, "compaction_share_max"),
        ({"free_bytes_min": -1}, "free_bytes_min"),
    ],
)  # fmt: skip
def test_a_setting_of_a_log_out_of_range_is_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(OutOfRange, match=f"{name} is ") as refused:
        LogConfig(**settings)
    error = refused.value
    assert (error.setting, error.value) == (name, settings[name])
    assert str(error) == f"{name} is {error.value}, want {error.want}"
