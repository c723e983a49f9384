"""Finders are made ready to look: what they load is loaded before, and only if it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mesh.errors import ConfigError
from mesh.finders import make_finders
from mesh.settings import load_config

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from mesh.settings import load_config
from mesh.finders import make_finders
settings = {{"zeroconf": {}, "seeds": ["tcp://127.0.0.1:1"]}}
make_finders(load_config(("shop",), settings, has_keyring=True), bytes(16))
print("zeroconf" in sys.modules)
"""


@pytest.mark.parametrize("zeroconf", [True, False])
def test_zeroconf_is_loaded_with_the_finders_where_it_is_used(zeroconf: bool) -> None:
    command = [sys.executable, "-c", SCRIPT.format(zeroconf)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert found.stdout.strip() == str(zeroconf)


@pytest.mark.parametrize("interface", ["eth0", "a..b", "::1", "10.0.0.256", "10.0.0.1\0"])
def test_what_is_no_interfaces_address_is_named(interface: str) -> None:
    """Found: a name that no resolver takes crashed the node, others left it without multicast."""
    settings = {"zeroconf_interfaces": ["127.0.0.1", interface]}
    config = load_config(("shop",), settings, has_keyring=True, environ={})
    with pytest.raises(ConfigError, match=r"^zeroconf_interfaces: want IPv4 addresses"):
        make_finders(config, bytes(16))
