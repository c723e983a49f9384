"""Finding other nodes: each way is a `Finder`. What is found is unverified (see finder.py).

Cheap to import: zeroconf is loaded when a `MdnsFinder` first runs, or before by `load_zeroconf`.
"""

from .dns import DnsFinder
from .errors import AnnouncementTooLarge, BadEndpoint, DiscoveryError
from .file import FileFinder
from .finder import Finder, Found, Sink
from .interfaces import addresses, host_id
from .mdns import MdnsFinder, MdnsSettings
from .seeds import SeedFinder

__all__ = [
    "AnnouncementTooLarge",
    "BadEndpoint",
    "DiscoveryError",
    "DnsFinder",
    "FileFinder",
    "Finder",
    "Found",
    "MdnsFinder",
    "MdnsSettings",
    "SeedFinder",
    "Sink",
    "addresses",
    "host_id",
]
