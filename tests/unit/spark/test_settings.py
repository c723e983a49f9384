"""Settings of a node as options, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.settings import TYPES
from security.files import format_network_secret
from spark.errors import InvalidOption
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


@pytest.mark.parametrize("name", ["network_secret", "network_secret_file", "keys_dir"])
def test_no_secret_is_in_an_error(name: str) -> None:
    """Found: one given in place of its file's path was."""
    secret = format_network_secret(bytes(32))
    with pytest.raises(InvalidOption) as caught:
        read_setting(name, secret, TYPES)
    assert secret not in str(caught.value)
    assert caught.value.value == "(hidden)"
