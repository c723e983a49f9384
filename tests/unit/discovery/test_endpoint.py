"""`tcp://host:port`, as people write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.endpoint import format_endpoint, parse_endpoint
from discovery.errors import BadEndpoint, DiscoveryError

GOOD = [
    ("tcp://10.0.0.1:9000", "10.0.0.1", 9000),
    ("tcp://a:1", "a", 1),
    ("tcp://Node-1.example.com.:65535", "Node-1.example.com.", 65535),
    ("tcp://compose_db_1:80", "compose_db_1", 80),
    ("tcp://[2001:db8::1]:9000", "2001:db8::1", 9000),
]
BAD = [
    "",
    "10.0.0.1:9000",
    "tcp://10.0.0.1",
    "tcp://:9000",
    "tcp://a:",
    "tcp://a:0",
    "tcp://a:65536",
    "tcp://a:123456",
    "tcp://a:+1",
    "tcp://a:\u0663",
    "udp://a:1",
    "TCP://a:1",
    "tcp://a:1/",
    "tcp://a:1\n",
    "tcp://a b:1",
    "tcp://*:1",
    "tcp://-a:1",
    "tcp://a..b:1",
    "tcp://\u00e4:1",
    "tcp://0.0.0.0:1",
    "tcp://[::]:1",
    "tcp://[10.0.0.1]:1",
    "tcp://[a]:1",
    "tcp://2001:db8::1:1",
    "tcp://10.0.0.256:1",
    "tcp://" + ".".join(["a" * 60] * 5) + ":1",
]


@pytest.mark.parametrize(("text", "host", "port"), GOOD)
def test_good(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == (host, port)
    assert format_endpoint(host, port) == text


@pytest.mark.parametrize("text", BAD)
def test_bad_ones_are_named(text: str) -> None:
    with pytest.raises(BadEndpoint) as caught:
        parse_endpoint(text)
    assert repr(text) in str(caught.value)
    assert caught.value.text == text
    assert isinstance(caught.value, DiscoveryError)
    assert isinstance(caught.value, ValueError)


@given(st.text(alphabet="tcp:/[]0123456789.-_a%", max_size=30) | st.text())
def test_any_text_is_an_endpoint_or_bad(text: str) -> None:
    """Goal: no input raises anything else, and what passes survives a round trip."""
    try:
        host, port = parse_endpoint(text)
    except BadEndpoint:
        return
    assert parse_endpoint(format_endpoint(host, port)) == (host, port)
