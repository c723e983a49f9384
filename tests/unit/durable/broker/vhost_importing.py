"""Imports of definitions, and permissions, by the two connections of the state machine in test_vhost_machine.py."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import trio

from durable.broker.defining import apply_import
from durable.definition_forms import to_plain
from durable.definitions import (
    BindingDefinition,
    Definitions,
    PermissionDefinition,
    QueueDefinition,
    StreamDefinition,
)
from durable.errors import (
    DefinitionConflict,
    ExclusiveQueue,
    InvalidDefinition,
    UnknownExchange,
    UnknownQueue,
)
from tests.vhost_members import Queue, Stream
from tests.vhosts import AnyStreams

from .vhost_declaring import Declaring
from .vhost_definitions import ADMINISTRATOR


async def _note(waits: list[int], position: int) -> None:
    waits.append(position)


class Importing(Declaring):
    def import_definitions(self, peer: int, wanted: Definitions, same: bool) -> None:
        """Declare everything or nothing. Where several things are wrong, any of them may be told.

        `same`: what exists is there with its present definition.
        """
        wanted = self.administered(self.as_it_is(wanted) if same else wanted)
        errors = tuple(self.wrong(peer, wanted))
        if not errors:
            self.add_all(wanted)
        task = partial(apply_import, self.running, self.peers[peer], ("/", wanted), AnyStreams)
        waits: list[int] = []
        with pytest.MonkeyPatch.context() as patch:  # A commit would read, in a loop of its own.
            patch.setattr(self.log, "wait_durable", partial(_note, waits))
            with pytest.raises(errors) if errors else nullcontext():
                trio.run(task)
        if any(position >= self.log.durable_end for position in waits):
            self.log.commit()

    def as_it_is(self, wanted: Definitions) -> Definitions:
        queues, streams = self.model.queues, self.model.streams
        there = {name: one.definition for name, one in queues.items()}
        kept = {name: one.definition for name, one in streams.items()}
        return replace(
            wanted,
            queues=tuple(there.get(one.name, one) for one in wanted.queues if one.name not in kept),
            streams=tuple(
                kept.get(one.name, one) for one in wanted.streams if one.name not in there
            ),
            exchanges=tuple(
                self.model.routes.exchange(one.name) or one for one in wanted.exchanges
            ),
        )

    def administered(self, wanted: Definitions) -> Definitions:
        """Leave out permissions that would let nobody change them; the administrator's come first."""
        allowed = {*self.model.permissions, ADMINISTRATOR}
        there = self.model.permissions or any(
            one.cluster == ADMINISTRATOR for one in wanted.permissions
        )
        some = tuple(one for one in wanted.permissions if there or one.cluster in allowed)
        return replace(wanted, permissions=some)

    def wrong(self, peer: int, wanted: Definitions) -> set[type[Exception]]:
        """Return all errors that the import may raise."""
        model, found = self.model, set[type[Exception]]()
        requested: list[QueueDefinition | StreamDefinition] = [*wanted.queues, *wanted.streams]
        names = [one.name for one in requested]
        exchanges = [one.name for one in wanted.exchanges]
        bindings = [repr(one) for one in wanted.bindings]
        clusters = [one.cluster for one in wanted.permissions]
        if any(len(set(some)) < len(some) for some in (names, exchanges, bindings, clusters)):
            found.add(InvalidDefinition)
        if any(one.exclusive for one in wanted.queues):
            found.add(InvalidDefinition)
        members: list[Queue | Stream] = [*model.queues.values(), *model.streams.values()]
        present = {one.definition.name: one.definition for one in members}
        if any(present.get(one.name, one) != one for one in requested):
            found.add(DefinitionConflict)
        for exchange in wanted.exchanges:
            if model.routes.exchange(exchange.name) not in (None, exchange):
                found.add(DefinitionConflict)
        for binding in wanted.bindings:
            found |= self.wrong_ends(peer, binding, {*names}, {*exchanges})
        return found

    def wrong_ends(
        self, peer: int, binding: BindingDefinition, names: set[str], exchanges: set[str]
    ) -> set[type[Exception]]:
        routes, found = self.model.routes, set[type[Exception]]()
        exchanges |= {one.name for one in routes.exchanges}
        if binding.exchange not in exchanges:
            found.add(UnknownExchange)
        if binding.to_exchange and binding.destination not in exchanges:
            found.add(UnknownExchange)
        if not binding.to_exchange and binding.destination not in names | {*routes.queues}:
            found.add(UnknownQueue)
        if routes.find(binding) is None and self.owned_by_another(peer, binding):
            found.add(ExclusiveQueue)
        return found

    def add_all(self, wanted: Definitions) -> None:
        model, routes = self.model, self.model.routes
        for exchange in wanted.exchanges:
            if routes.exchange(exchange.name) is None:
                routes.exchanges.append(exchange)
        for queue in wanted.queues:
            if queue.name not in model.queues:
                model.add(queue.name, Queue(queue, None, model.dead, model.now_us))
            there = model.queues[queue.name]
            there.ending, there.used_us = None, model.now_us
        for stream in wanted.streams:
            if stream.name not in model.streams:
                model.add(stream.name, Stream(stream))
        for binding in wanted.bindings:
            if routes.find(binding) is None:
                routes.bindings.append(binding)
        model.permissions |= {one.cluster: one for one in wanted.permissions}

    def set_permission(self, wanted: PermissionDefinition) -> None:
        """Set a permission; without any, the administrator's first."""
        model = self.model
        if model.permissions or wanted.cluster == ADMINISTRATOR:
            model.permissions[wanted.cluster] = wanted
            self.call(0, "set_permission", None, definition=to_plain(wanted))

    def clear_permission(self, cluster: str) -> None:
        """Clear a permission; the administrator's last."""
        there = self.model.permissions
        if cluster != ADMINISTRATOR or there.keys() <= {ADMINISTRATOR}:
            existed = there.pop(cluster, None) is not None
            assert self.call(0, "clear_permission", None, cluster=cluster) is existed
