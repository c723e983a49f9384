"""Makes the finders that a node's settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

from discovery.dns import DnsFinder
from discovery.errors import DiscoveryError
from discovery.file import FileFinder
from discovery.finder import Finder
from discovery.mdns import MdnsFinder
from discovery.responder import load_zeroconf
from discovery.seeds import SeedFinder

from .config import MeshConfig
from .errors import ConfigError


def make_finders(config: MeshConfig, node: bytes) -> tuple[Finder, ...]:
    """Return the finders. Raises ConfigError if a setting is not a valid address."""
    for interface in config.zeroconf_interfaces:
        try:
            IPv4Address(interface)
        except ValueError:
            wanted = "want IPv4 addresses of this machine"
            raise ConfigError(f"zeroconf_interfaces: {wanted}, got {interface!r}") from None
    finders: list[Finder] = []
    if config.seeds:
        with _naming_setting("seeds"):
            finders.append(SeedFinder(config.seeds))
    with _naming_setting("dns"):
        finders += [DnsFinder(name) for name in dict.fromkeys(config.dns)]
    if config.seeds_file is not None:
        finders.append(FileFinder(config.seeds_file))
    if config.zeroconf:
        # Loaded here, before the node starts: it takes 60 ms, which would delay other finders later, and
        # nodes without zeroconf save it.
        load_zeroconf()
        finders.append(MdnsFinder(node.hex(), interfaces=config.zeroconf_interfaces or None))
    return tuple(finders)


@contextmanager
def _naming_setting(setting: str) -> Iterator[None]:
    """Turn discovery errors in the block into ConfigError, with the setting's name in front."""
    try:
        yield
    except DiscoveryError as error:
        raise ConfigError(f"{setting}: {error}") from error
