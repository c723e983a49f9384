"""Each step that is measured by itself does what its row says."""

from __future__ import annotations

import pytest

from bench import steps
from bench.durable import steps as durable_steps
from bench.plan import Scale
from bench.processes import Troupe
from bench.roles import step as role
from durable.log.record import Draft, Record
from security.announcement import Announcement
from security.at_rest import DATA_KEY_BYTES, NONCE_BYTES, decrypt


def done(name: str) -> object:
    with role.STEPS[name]() as step:
        return step()


def test_an_announcement_is_believed() -> None:
    read = done("announcement")
    assert isinstance(read, Announcement)
    assert read.clusters == ("databases",)


@pytest.mark.parametrize(("name", "size_bytes"), [("encrypt", 100), ("encrypt_batch", 512 << 10)])
def test_records_are_encrypted(name: str, size_bytes: int) -> None:
    draft = done(name)
    assert isinstance(draft, Draft)
    assert draft.encrypted
    assert len(draft.body) > size_bytes


def test_records_are_decrypted() -> None:
    record = done("decrypt")
    assert isinstance(record, Record)
    assert record.body == bytes(100)


def test_both_ways_to_encrypt_have_the_same_bytes_to_do() -> None:
    encrypted, other = done("aegis_256"), done("xchacha20_poly1305")
    assert isinstance(encrypted, bytes)
    assert isinstance(other, bytes)
    assert decrypt(bytes(DATA_KEY_BYTES), encrypted, b"") == bytes(role.CHUNK_BYTES)
    assert len(encrypted) >= role.CHUNK_BYTES + NONCE_BYTES
    assert len(other) > role.CHUNK_BYTES


def test_a_snapshot_has_all_queues() -> None:
    drafts = done("queues_snapshot")
    assert isinstance(drafts, list)
    assert sum(bytes(draft.body).count(b"queue.") for draft in drafts) == role.QUEUES


def test_every_step_is_measured_once_and_makes_a_connection_where_it_says_so() -> None:
    families = [*steps.family(), *durable_steps.family()]
    cases = [case for family in families for case in family.cases]
    assert len(cases) == len(role.STEPS)
    with Troupe() as troupe:
        outcomes = [case.run(troupe, Scale(quick=True)) for case in cases]
    assert all(outcome.values["us"] > 0 for outcome in outcomes)
