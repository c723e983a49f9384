"""Messages lost while a proxy resets every TCP connection 20 times under load.

    load node --> the proxy, as its seed --> sink node
    sink node --> the proxy, as the load node advertises --> load node

Beside raw pyzmq in the same run: DEALER to ROUTER through the same kind of proxy.
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
"""One for the door, one for the key of the node's cluster."""
SIZE_BYTES = 200
TRAFFIC_BYTES = 200_000
"""A reset waits until so many bytes have passed since the last one, so each reset hits links under load."""

PATTERNS = {"publish": "published messages", "request": "requests", "tunnel": "tunnel parts"}
RAW = "raw DEALER-ROUTER through resets"


def behind_proxy(
    network: Network, cluster: str
) -> tuple[dict[str, Any], str, list[tuple[int, int]]]:
    """Return the settings of a node behind the proxy, its endpoint at the proxy, and the proxy's routes to it."""
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
        # Losses are the figure itself; duplicated or reordered messages make the run wrong. Requests are exempt from
        # the order, as many tasks send them.
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
