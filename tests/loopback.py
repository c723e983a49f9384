"""An address of loopback that is this process' own.

The nodes of a test go on dialling those that died; where another of pytest's processes got such a port, its
program would rightly say that it refused a stranger.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Address

HOST = str(IPv4Address("127.64.0.0") + os.getpid())
"""Linux counts processes up to 2^22: never beyond 127.127.255.255."""
ANY_PORT = f"tcp://{HOST}:0"
