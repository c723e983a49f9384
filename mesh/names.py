"""The rules for names: clusters, endpoints of clusters, topics, patterns, node ids.

cluster    databases             [a-z0-9][a-z0-9._-]{0,62}
target     databases/get         cluster, then an endpoint of its service
topic      orders.eu.created     tokens of printable characters without space, * and >
pattern    orders.*.created      `*` is any one token, a last `>` is one or more; `#` and `+` are not allowed as tokens
"""

from __future__ import annotations

import re
from functools import lru_cache

from security.names import BOTH_CASES, CLUSTER, name_problem

from .errors import InvalidName

ENDPOINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f-\x9f]+")
LENIENT_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
"""For peers' and stored names: earlier versions allowed U+0080 to U+009F, which are control characters, too."""
TOPIC_BYTES_MAX = 255
DEFAULT_ENDPOINT = "default"
RULES = {
    "topic": "want tokens joined by dots, such as orders.eu.created; a token has no white space, "
    "control characters, * or >",
    "pattern": "want tokens joined by dots, such as orders.*.created or orders.>: * must be a whole "
    "token, > the last one; other tokens have no white space, control characters, * or >",
}
FOREIGN_WILDCARDS = {
    "#": (" (only for topic exchanges of a broker)", "> at the end for one or more tokens"),
    "+": ("", "* for one token"),
}
"""Wildcards of AMQP and MQTT: where they are valid, and our own to use instead."""


def check_cluster(name: str) -> str:
    """Return `name`, or raise InvalidName."""
    if not isinstance(name, str) or not CLUSTER.fullmatch(name):
        raise InvalidName(f"cluster {name!r}: {name_problem(name)}")
    return name


def check_endpoint(name: str) -> str:
    """Return `name`, or raise InvalidName."""
    if not isinstance(name, str) or not ENDPOINT.fullmatch(name):
        raise InvalidName(f"endpoint {name!r}: {name_problem(name, BOTH_CASES)}")
    return name


def split_target(target: str) -> tuple[str, str]:
    """Split `databases/get` into cluster `databases` and endpoint `get`; without `/` the default endpoint.

    Raises InvalidName.
    """
    if not isinstance(target, str):
        raise InvalidName(f"target: want text, CLUSTER or CLUSTER/ENDPOINT, got {target!r}")
    return _split(target)


@lru_cache(maxsize=4096)
def _split(target: str) -> tuple[str, str]:
    cluster, slash, endpoint = target.partition("/")
    check_cluster(cluster)
    return cluster, check_endpoint(endpoint) if slash else DEFAULT_ENDPOINT


def check_topic(topic: str) -> bytes:
    """Return the topic's bytes, or raise InvalidName."""
    return _topic(topic, TOKEN)


def check_existing_topic(topic: str) -> bytes:
    """Like `check_topic`, for a topic that a peer has published to."""
    return _topic(topic, LENIENT_TOKEN)


def check_pattern(pattern: str) -> tuple[str, ...]:
    """Return the tokens of a pattern that a caller gives, or raise InvalidName."""
    tokens = _pattern(pattern, TOKEN)
    # A topic may contain these tokens, but in a pattern they are meant as wildcards, and would match nothing.
    for token, (rule, want) in FOREIGN_WILDCARDS.items():
        if token in tokens:
            raise InvalidName(
                f"pattern {pattern!r}: {token} is not a wildcard here{rule}; want {want}"
            )
    return tokens


def check_existing_pattern(pattern: str) -> tuple[str, ...]:
    """Like `check_pattern`, for a pattern that already exists: a peer's, or a stored one."""
    return _pattern(pattern, LENIENT_TOKEN)


def _topic(topic: str, rule: re.Pattern[str]) -> bytes:
    return _check_tokens(topic, "topic", topic.split(".") if isinstance(topic, str) else [], rule)


def _pattern(pattern: str, rule: re.Pattern[str]) -> tuple[str, ...]:
    tokens = pattern.split(".") if isinstance(pattern, str) else []
    plain = tokens[:-1] if tokens and tokens[-1] == ">" else tokens
    plain = ["x" if token == "*" else token for token in plain] or ["x"]
    _check_tokens(pattern, "pattern", plain, rule)
    return tuple(tokens)


def _check_tokens(whole: str, kind: str, tokens: list[str], rule: re.Pattern[str]) -> bytes:
    if (
        not isinstance(whole, str)
        or not tokens
        or not all(rule.fullmatch(token) for token in tokens)
    ):
        raise InvalidName(f"{kind} {whole!r}: {RULES[kind]}")
    try:
        raw = whole.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"{kind} {whole!r}: not valid Unicode") from error
    if len(raw) > TOPIC_BYTES_MAX:
        raise InvalidName(f"{kind} of {len(raw)} bytes exceeds the limit of {TOPIC_BYTES_MAX}")
    return raw


def short_id(node: bytes) -> str:
    """Return a node id as people read it: its first eight hex digits."""
    return node.hex()[:8]
