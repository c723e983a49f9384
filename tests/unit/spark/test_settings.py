"""Settings of a node as options, and back."""

from __future__ import annotations

from pathlib import Path

from mesh.settings import TYPES
from spark.settings import SETTING_PREFIX, joining_options, key_options, read_setting


def test_settings_become_options() -> None:
    found = joining_options(
        {"seeds": ["tcp://a:1", "tcp://b:2"], "zeroconf": False, "keys_dir": Path("k")}
    )
    assert found == {
        "mesh.seeds": "tcp://a:1,tcp://b:2", "mesh.zeroconf": "false", "mesh.keys_dir": "k",
    }  # fmt: skip
    read = {
        name: read_setting(name.removeprefix(SETTING_PREFIX), text, TYPES)
        for name, text in found.items()
    }
    assert read == {
        "mesh.seeds": ("tcp://a:1", "tcp://b:2"), "mesh.zeroconf": False, "mesh.keys_dir": Path("k"),
    }  # fmt: skip
    assert key_options(found) == {"mesh.keys_dir": "k"}
