"""A loopback address that only this process uses.

The nodes of a test keep dialling those that have died. If another pytest process got such a port, its program would
rightly report that it refused a stranger.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Address

HOST = str(IPv4Address("127.64.0.0") + os.getpid())
"""Process ids on Linux are below 2^22, so it is at most 127.127.255.255."""
ANY_PORT = f"tcp://{HOST}:0"
