"""A setting of a broker that cannot be is named, before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from durable.config import WINDOW_BYTES_MAX, BrokerConfig
from mesh.errors import ConfigError


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
