"""Checks whether the addresses that a node was given can be reached, for `mesh doctor` and NoMembers."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import trio

from discovery.endpoint import parse_endpoint
from discovery.errors import BadEndpoint
from discovery.resolver import Resolver

from ..node import Node
from ..nursery import run_within
from .terminal import print_stderr

ANSWER_S_MAX = 2.0
"""For the look-up and the connection together; a live seed on a WAN needs a tenth of it."""


async def wait_discovery(node: Node, seconds: float) -> None:
    """Give the node `seconds` to find others. A blocked loop uses up only a part of this time."""
    with node.within(seconds):
        await trio.sleep_forever()


async def endpoint_problem(endpoint: str) -> str | None:
    """Return what is wrong with an address, and what to do; None if it accepts connections."""
    try:
        host, port = parse_endpoint(endpoint)
    except BadEndpoint as error:
        return str(error)
    problem: str | None = f"no answer within {ANSWER_S_MAX:g} s; check for a firewall in between"

    async def connect() -> None:
        nonlocal problem
        # One resolver per address, so that a name that hangs delays no other one.
        address = await Resolver(threads_max=1).address_to_dial(host)
        if address is None:
            problem = (
                f"host name {host} cannot be resolved to an IPv4 address; correct it, or use an IP "
                "address"
            )
            return
        family = trio.socket.AF_INET6 if ":" in address else trio.socket.AF_INET
        try:
            with trio.socket.socket(family) as probe:
                await probe.connect((address, port))
                problem = None
        except OSError as error:  # Also for an address family that this machine lacks.
            problem = _explain(error)

    await run_within(ANSWER_S_MAX, connect)
    return problem


def _explain(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "connection refused, nothing listens there; start the node, or correct the address"
    return f"{error.strerror or error}; correct the address, or the route to it"


async def endpoint_problems(endpoints: Iterable[str]) -> dict[str, str | None]:
    """Return what is wrong with each address, or None; all are tried at once."""
    found: dict[str, str | None] = dict.fromkeys(endpoints)

    async def check(endpoint: str) -> None:
        found[endpoint] = await endpoint_problem(endpoint)

    async with trio.open_nursery() as nursery:
        for endpoint in found:
            nursery.start_soon(check, endpoint)
    return found


async def explain_no_members(node: Node) -> None:
    """Print a line for each seed that cannot be reached and each finder with a problem, then what to try next.

    With the keys of another network, all that is seen here is silence or refusals.
    """
    for endpoint, problem in (await endpoint_problems(node.config.seeds)).items():
        if problem is not None:
            print_stderr(f"seed {endpoint}: {problem}")
    for source, problem in node.problems().items():
        if source != "seeds":  # Seeds were reported above.
            print_stderr(f"{source}: {problem}")
    if not node.members():
        print_stderr("no other members found; `mesh doctor` may tell why")
    elif node.statistics().refused:
        print_stderr("some nodes were refused; `mesh doctor` may tell why")
