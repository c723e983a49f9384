"""Messages lost while a proxy resets every TCP connection 20 times under load.

    load node --> its seed: the proxy --> sink node
    sink node --> what the load node advertises: the proxy --> load node

Beside raw pyzmq in the same run: DEALER to ROUTER through the same proxy.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from . import raw
from .figure import at_most
from .network import Network
from .plan import Case, Family, Outcome, Row, Scale
from .stream import knock_until_ready

if TYPE_CHECKING:
    from .processes import Troupe

RESETS = 20
PORTS_PER_NODE = 2
"""The door, and its cluster's key."""
SIZE_BYTES = 200
TRAFFIC_BYTES = 200_000
"""A reset waits for so much since the last one, so each one hits links that carry something."""

PATTERNS = {"publish": "published messages", "request": "requests", "tunnel": "tunnel parts"}
RAW = "raw DEALER-ROUTER through resets"


def behind_proxy(
    network: Network, cluster: str
) -> tuple[dict[str, Any], str, list[tuple[int, int]]]:
    """Settings of a node, its endpoint in front of the proxy, and the proxy's routes to it."""
    inside, outside = network.free_ports(PORTS_PER_NODE), network.free_ports(PORTS_PER_NODE)
    settings = network.node(cluster, seeds=[], advertise=outside.places)
    settings["listen"] = inside.places
    return settings, outside.endpoint, list(zip(outside, inside, strict=True))


def resets(name: str, pattern: str, count: int = RESETS) -> Case:
    def run(troupe: Troupe, scale: Scale) -> Outcome:
        with closing(Network()) as network:
            return lost_over_resets(troupe, network, pattern, count)

    return Case(name, run)


def lost_over_resets(troupe: Troupe, network: Network, pattern: str, count: int) -> Outcome:
    sink_settings, sink_front, sink_routes = behind_proxy(network, "bench-sink")
    load_settings, load_front, load_routes = behind_proxy(network, "bench-load")
    sink_settings |= {"seeds": [load_front], "pattern": pattern}
    load_settings |= {
        "seeds": [sink_front],
        "pattern": pattern,
        "target": "bench-sink",
        "size_bytes": SIZE_BYTES,
    }
    proxy = troupe.start("proxy", {"routes": sink_routes + load_routes})
    sink = troupe.start("mesh_sink", sink_settings, wait=False)
    load = troupe.start("mesh_load", load_settings)
    if pattern == "publish":
        knock_until_ready(load, [sink])
    else:
        sink.hear()
    load.ask("load")
    connections = raw.reset_all(proxy, count, TRAFFIC_BYTES)
    sent = load.ask("stop")
    report = sink.ask("settle", sent=sent["sent"])
    return Outcome(
        {"lost": report["lost"] + sent["failed"]},
        # A loss is the figure here; what came twice or out of order would spoil it. Requests
        # of many tasks have no order.
        wrong=report["duplicated"] + (report["reordered"] if pattern != "request" else 0),
        detail={"connections_reset": connections, **sent, **report},
    )


def family() -> list[Family]:
    cases = [raw.resets(RAW, SIZE_BYTES, RESETS, traffic_bytes=TRAFFIC_BYTES)]
    rows = []
    for pattern, words in PATTERNS.items():
        name = f"{words} lost over {RESETS} TCP resets under load"
        cases.append(resets(name, pattern))
        rows.append(
            Row(
                name=name,
                unit="messages",
                case=name,
                value="lost",
                reference=(RAW, "lost"),
                bounds=(at_most(0),),
                worst=True,
            )
        )
    return [Family(name="resets", cases=cases, rows=rows)]
