"""A broker that encrypts what it writes: nothing of it stands in its directory, and it is all there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import durable
from durable.broker.directory import vhost_names, vhost_path
from durable.errors import BrokerLost, StoreKeyMissing, StoreKeyWrong, VhostUnavailable
from durable.log.encryption import is_encrypted
from security.files import format_network_secret
from tests.brokers import SMALL, client, drain, node_of, numbered, payloads, serving, take
from tests.nodes import node
from tests.processes import SECRET
from tests.waiting import until

ENCRYPTED = replace(SMALL, encrypt=True, checkpoint_bytes=1, idle_s=0.05)
NEW_SECRET = format_network_secret(b"tests of the mesh, new one, 32 b")
WORD, NAMES = b"what nobody is to read", b"of-theirs"


def messages(count: int, first: int = 0) -> list[bytes]:
    return [WORD + one for one in numbered(count, first)]


def every_byte(path: Path) -> bytes:
    """Of all files and of their names."""
    found = sorted(path.rglob("*"))
    names = b" ".join(str(one.relative_to(path)).encode() for one in found)
    return names + b"".join(map(bytes_of, found))


def bytes_of(path: Path) -> bytes:
    """None of a folder, nor of a file that has been renamed since it was listed."""
    with suppress(FileNotFoundError, IsADirectoryError):
        return path.read_bytes()
    return b""


async def use(path: Path, config: durable.BrokerConfig) -> bytes:
    """Whatever leaves traces; everything in the directory while the broker runs, and after that."""
    async with serving(path, config=config) as broker, client(broker) as shop:
        await shop.declare_exchange("exchange-of-theirs", type="topic")
        await shop.declare_queue("dead-of-theirs")
        await shop.declare_queue(
            "queue-of-theirs", dead_letter_exchange="", dead_letter_routing_key="dead-of-theirs"
        )
        await shop.declare_stream("stream-of-theirs", patterns=["topic-of-theirs"])
        for to in ("queue-of-theirs", "stream-of-theirs"):
            await shop.bind("exchange-of-theirs", to, "key-of-theirs.*")
        await shop.publish_many(
            "exchange-of-theirs", "key-of-theirs.1", messages(100), headers={"header-of-theirs": 1}
        )
        await node_of(broker).publish("topic-of-theirs", WORD)
        async with shop.consume("queue-of-theirs", prefetch=0) as deliveries:
            for number, one in enumerate(await take(deliveries, 100)):
                await (one.ack() if number < 50 else one.reject() if number < 60 else one.nack())
            await deliveries.synced()
        async with shop.read(
            "stream-of-theirs", start="first", cursor="cursor-of-theirs"
        ) as records:
            await (await take(records, 101))[-1].ack()
        await until(lambda: any("checkpoint" in one.name for one in path.rglob("*")))
        running = every_byte(path)
    return running + every_byte(path)


async def test_nothing_of_it_stands_in_the_directory_and_it_is_all_there(tmp_path: Path) -> None:
    for encrypt in (False, True):
        path = tmp_path / str(encrypt)
        written = await use(path, replace(ENCRYPTED, encrypt=encrypt))
        assert [b"checkpoint" in written, b"/enq" in written, b"/keys" in written] == [
            True, True, encrypt,
        ]  # fmt: skip
        assert [WORD in written, NAMES in written] == [not encrypt, not encrypt]
    async with serving(path, config=ENCRYPTED) as broker, client(broker) as shop:
        assert broker.hosted("/").log.report.encrypted
        assert sorted(await drain(shop, "queue-of-theirs")) == sorted(messages(40, 60))
        assert await drain(shop, "dead-of-theirs") == messages(10, 50)
        async with shop.read("stream-of-theirs", start="first") as records:
            assert payloads(await take(records, 101)) == [*messages(100), WORD]
        await shop.publish("", "queue-of-theirs", WORD)
        written = every_byte(path)
        assert (WORD in written, NAMES in written) == (False, False)


async def test_it_is_switched_on_and_off_for_what_is_written_from_then_on(tmp_path: Path) -> None:
    for number, encrypt in enumerate([False, True, False]):
        config = replace(SMALL, encrypt=encrypt)
        async with serving(tmp_path, config=config) as broker, client(broker) as shop:
            await shop.declare_queue("jobs")
            await shop.publish_many("", "jobs", messages(10, 10 * number))
            await shop.create_vhost(f"vhost-{number}")
    logs = {name: vhost_path(tmp_path, name) / "log" for name in vhost_names(tmp_path)}
    assert {name: is_encrypted(log) for name, log in logs.items()} == {
        "/": True, "vhost-0": True, "vhost-1": True, "vhost-2": False,
    }  # fmt: skip
    segments = every_byte(logs["/"])
    assert [one in segments for one in messages(30)] == [True] * 10 + [False] * 10 + [True] * 10
    async with serving(tmp_path, config=SMALL) as broker, client(broker) as shop:
        assert await drain(shop, "jobs") == messages(30)


async def test_keys_rotate_and_a_dropped_generation_opens_nothing(tmp_path: Path) -> None:
    for number, secrets in enumerate([SECRET, f"{NEW_SECRET} {SECRET}", NEW_SECRET]):
        async with (
            serving(tmp_path, config=ENCRYPTED, network_secret=secrets) as broker,
            client(broker, network_secret=secrets) as shop,
        ):
            await shop.declare_queue("jobs")
            await shop.publish_many("", "jobs", messages(10, 10 * number))
    for config in (SMALL, ENCRYPTED):
        with pytest.raises(StoreKeyWrong) as caught:
            async with serving(tmp_path, config=config, network_secret=SECRET):
                pass
        assert len(caught.value.wanted) == len(caught.value.held) == 1
        assert caught.value.wanted != caught.value.held
    async with (
        serving(tmp_path, network_secret=NEW_SECRET) as broker,
        client(broker, network_secret=NEW_SECRET) as shop,
    ):
        assert await drain(shop, "jobs") == messages(30)


async def test_a_broker_without_a_keyring_neither_encrypts_nor_decrypts(tmp_path: Path) -> None:
    with pytest.raises(StoreKeyMissing, match="none for encrypting"):
        async with durable.Broker(tmp_path, config=ENCRYPTED):
            pass
    async with serving(tmp_path, config=ENCRYPTED):
        pass
    with pytest.raises(StoreKeyMissing, match="is encrypted for keys"):
        async with durable.Broker(tmp_path, config=SMALL):
            pass


async def test_a_store_whose_keys_are_gone_is_not_opened_and_loses_nothing(tmp_path: Path) -> None:
    """Found: without `encrypt` it started from its plain checkpoint, and delivered none of what is
    encrypted: that was settled as damaged, and still was when the keys were there again."""
    plain = replace(ENCRYPTED, encrypt=False)
    for number, config in enumerate([ENCRYPTED, plain, plain]):
        async with serving(tmp_path, config=config) as broker, client(broker) as shop:
            await shop.declare_queue("jobs")
            for part in range(40):
                some = messages(5, 200 * number + 5 * part)
                await shop.publish_many("", "jobs", [one + bytes(3000) for one in some])
            report = broker.hosted("/").log.report
    assert report.records < 80, "a start does not read what is encrypted"
    keys = vhost_path(tmp_path, "/") / "log" / "keys"
    aside = keys.rename(tmp_path / "aside")
    for config in (plain, ENCRYPTED):
        with pytest.raises(StoreKeyMissing, match=r"the file keys in .* is gone"):
            async with serving(tmp_path, config=config):
                pass
    aside.rename(keys)
    async with serving(tmp_path, config=plain) as broker, client(broker) as shop:
        found = await drain(shop, "jobs")
    assert [one[:-3000] for one in found] == messages(600)


@pytest.mark.parametrize("encrypt", [False, True])
async def test_what_compaction_carries_forward_is_there_after_a_restart(
    tmp_path: Path, encrypt: bool
) -> None:
    config = replace(
        ENCRYPTED, encrypt=encrypt,
        log=replace(SMALL.log, compaction_share_max=0.5, segment_bytes=1 << 17, reserve_bytes=1 << 13),
    )  # fmt: skip
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        for queue in ("kept", "gone"):
            await shop.declare_queue(queue)
        for number in range(40):
            await shop.publish_many("", "gone", [WORD * 20] * 20)
            await shop.publish("", "kept", b"%d " % number + WORD)
        assert len(await drain(shop, "gone")) == 800
        log = broker.hosted("/").log
        await until(lambda: log.statistics().segments <= 2, 20)
        written = every_byte(tmp_path)
    assert (WORD in written) is not encrypt
    async with serving(tmp_path, config=config) as broker, client(broker) as shop:
        assert await drain(shop, "kept") == [b"%d " % number + WORD for number in range(40)]


async def test_a_vhost_without_its_keys_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found: the broker did not start, and said which directory it was, not which vhost."""
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        home = durable.connect(joined)
        await home.declare_queue("jobs")
        await home.publish("", "jobs", b"1")
    other = serving(tmp_path / "other", config=ENCRYPTED, network_secret=NEW_SECRET)
    async with (
        other as broker,
        client(broker, network_secret=NEW_SECRET) as home,
    ):
        await home.create_vhost("secret")
    vhost_path(tmp_path / "other", "secret").rename(vhost_path(tmp_path, "secret"))
    async with serving(tmp_path) as broker, node("shop", node_of(broker)) as joined:
        assert "vhost secret cannot be opened, only the others are served: " in caplog.text
        home = durable.connect(joined)
        assert await home.vhosts() == ["/"]
        assert await drain(home, "jobs") == [b"1"]
        for refused in (home.create_vhost("secret"), home.delete_vhost("secret")):
            with pytest.raises(VhostUnavailable, match="'secret'"):
                await refused
        secret = durable.connect(joined, vhost="secret", timeout=0.5)
        with pytest.raises(BrokerLost, match="vhost 'secret' could not be opened"):
            await secret.statistics()
