"""Ports and the secret that the mesh side of a measurement starts with."""

from __future__ import annotations

import os
import socket
from contextlib import closing

from bench.network import LOOPBACK, PORTS, Network, Ports, claim, is_free


def test_ports_in_a_row_as_a_seed_and_as_places() -> None:
    ports = Ports(20_000, 3)
    assert list(ports) == [20_000, 20_001, 20_002]
    assert ports.endpoint == "tcp://127.0.0.1:20000"
    assert ports.places == "tcp://127.0.0.1:20000-20002"


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        assert not is_free(taken.getsockname()[1])


def test_a_port_that_another_measurement_has_claimed_is_not_claimed_again() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("\0mesh-bench-port-19990")
        assert claim(19_990) is None
    held = claim(19_990)
    assert held is not None
    assert claim(19_990) is None
    os.close(held)


def test_free_ports_are_given_once() -> None:
    with closing(Network()) as network:
        given = [port for _ in range(100) for port in network.free_ports(2)]
    assert len(given) == len(set(given)) == 200


def test_a_long_row_of_ports_overlaps_nobody() -> None:
    """Found: only its first ten were claimed, and a system of 25 connections has 26."""
    with closing(Network()) as network, closing(Network()) as other:
        given = [port for _ in range(10) for one in (network, other) for port in one.free_ports(26)]
    assert len(given) == len(set(given)) == 520


def test_ports_and_descriptors_of_a_measurement_that_is_over_are_free() -> None:
    """Found: held until the bench ended, which it did by that in its thousandth run."""
    held = os.listdir("/proc/self/fd")
    for _ in range(len(PORTS) // 100 + 1):
        with closing(Network()) as network:
            for _ in range(100):
                network.free_ports(1)
    assert os.listdir("/proc/self/fd") == held


def test_nodes_of_a_network_share_its_secret_and_no_other_network_has_it() -> None:
    one, other = Network(), Network()
    a, b = one.node("a", seeds=[]), one.node("b", seeds=["tcp://127.0.0.1:1"], peers_max=1)
    assert a["network_secret"] == b["network_secret"]
    assert a["network_secret"] != other.node("a", seeds=[])["network_secret"]
    assert b["peers_max"] == 1
