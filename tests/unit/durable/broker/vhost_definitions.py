"""Definitions that the state machine in test_vhost_machine.py declares: few names, to cause conflicts; small limits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from durable.definitions import (
    DROP_HEAD,
    MEMORY,
    REJECT_PUBLISH,
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)

Wanted = QueueDefinition | ExchangeDefinition | StreamDefinition | BindingDefinition
NOWHERE = (None, None)
ADMINISTRATOR = "shop"
"""The cluster of all clients; others may have any permissions."""

members = st.sampled_from(["a", "b", "c", "s"])
"""Names of queues; two of them are names of streams, too."""
keys = st.sampled_from(["a", "b", "c", "s"])
exchanges = st.sampled_from(["x", "y"])
MAYBE_LIMITED = {
    "max_length": st.sampled_from([None, 2, 4]),
    "max_length_bytes": st.sampled_from([None, None, 60]),
    "overflow": st.sampled_from([DROP_HEAD, REJECT_PUBLISH]),
    "ttl_s": st.sampled_from([None, None, None, None, 0.3, 0.6]),
    "expires_s": st.sampled_from([None, None, None, 0.24]),
    "delivery_limit": st.sampled_from([None, None, 1, 2]),
    "max_priority": st.sampled_from([0, 0, 2, 2, 9]),
    "single_active_consumer": st.sampled_from([False, False, True]),
}
definitions = st.builds(
    lambda letters, **fields: QueueDefinition(
        dead_letter_exchange=letters[0], dead_letter_routing_key=letters[1], **fields
    ),
    letters=st.sampled_from([NOWHERE, ("", "b"), ("", "s"), ("x", None), ("y", "c")]),
    name=members,
    durability=st.sampled_from(["disk", "disk", MEMORY]),
    exclusive=st.sampled_from([False, False, False, True]),
    auto_delete=st.sampled_from([False, False, True]),
    **MAYBE_LIMITED,
)
limited = st.builds(
    lambda letters, **fields: QueueDefinition(
        dead_letter_exchange=letters[0], dead_letter_routing_key=letters[1], **fields
    ),
    letters=st.sampled_from([NOWHERE, ("", "a"), ("", "b"), ("amq.fanout", None)]),
    name=st.sampled_from(["a", "b", "c"]),
    durability=st.sampled_from(["disk", "disk", "disk", MEMORY]),
    **MAYBE_LIMITED,
)
"""Queues that are not deleted automatically, and that dead-letter to one another."""
exchange_definitions = st.builds(
    ExchangeDefinition,
    name=exchanges,
    type=st.sampled_from(["fanout", "fanout", "topic"]),
    alternate=st.sampled_from([None, None, "x", "y"]),
    auto_delete=st.booleans(),
    internal=st.sampled_from([False, False, False, True]),
)
streams = st.builds(
    StreamDefinition,
    name=st.sampled_from(["c", "s", "s"]),
    patterns=st.just(("t.>",)),
    max_length=st.sampled_from([None, 3]),
)
bindings = st.builds(
    lambda exchange, to, key: BindingDefinition(
        exchange=exchange, destination=to[0], to_exchange=to[1], key=key
    ),
    st.sampled_from(["x", "y", "amq.fanout"]),
    st.tuples(members, st.just(False)) | st.tuples(exchanges, st.just(True)),
    keys | st.just("#"),
)
permissions = st.builds(
    PermissionDefinition, cluster=st.just(ADMINISTRATOR), configure=st.just(".*"),
    write=st.just(".*"), read=st.just(".*"), capture=st.sampled_from([".*", "t.*"]),
) | st.builds(
    PermissionDefinition, cluster=st.sampled_from(["crm", "bi"]),
    configure=st.sampled_from(["", "a", ".*"]), capture=st.sampled_from([".*", "", "t.*"]),
)  # fmt: skip
imports = st.builds(
    Definitions,
    queues=st.lists(
        st.builds(replace, definitions, name=members | st.just("d"), exclusive=st.sampled_from([False] * 5 + [True])),
        max_size=2,
    ).map(tuple),
    exchanges=st.lists(exchange_definitions, max_size=1).map(tuple),
    bindings=st.lists(bindings, max_size=2).map(tuple),
    streams=st.lists(streams, max_size=1).map(tuple),
    permissions=st.lists(permissions, max_size=1).map(tuple),
)  # fmt: skip
WANTED: dict[str, st.SearchStrategy[Wanted]] = {
    "queue": definitions, "stream": streams, "exchange": exchange_definitions, "binding": bindings,
}  # fmt: skip
