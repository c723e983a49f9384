"""Where exported definitions go, and what is taken of a file."""

from __future__ import annotations

import os
import stat
import threading
from argparse import Namespace
from pathlib import Path

import msgpack
import pytest

from durable.commands.defining import FILE_BYTES_MAX, as_json, import_definitions, write_file
from durable.definition_forms import export_definitions
from durable.definitions import BindingDefinition, Definitions, QueueDefinition
from durable.errors import DurableError, InvalidDefinition
from durable.protocol.definition_bytes import BYTES_MAX


def test_what_a_broker_takes_is_read_from_a_file() -> None:
    """Found: 110,000 queues with a binding each were exported to a file that was too large to import."""
    names = [f"orders.of.region.{number}" for number in range(100)]
    definitions = Definitions(
        queues=tuple(QueueDefinition(name=name) for name in names),
        bindings=tuple(
            BindingDefinition(exchange="amq.topic", destination=name, key=name) for name in names
        ),
    )
    plain = export_definitions(definitions, "/")
    assert len(as_json(plain)) / len(msgpack.packb(plain)) <= FILE_BYTES_MAX / BYTES_MAX


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    write_file(file, "old")
    file.chmod(0o600)
    write_file(file, "new")
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["all.json"]


def test_who_names_no_directory_is_told_of_the_file_they_named(tmp_path: Path) -> None:
    """Found: of `/nodir/.all.json.new`, which nobody had given."""
    with pytest.raises(FileNotFoundError) as caught:
        write_file(tmp_path / "nodir" / "all.json", "text")
    assert caught.value.filename == str(tmp_path / "nodir" / "all.json")


def test_what_a_symlink_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    """Found: the link became a file, and where it led to stayed as it was."""
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "target"
    link.symlink_to("there/target")
    for text in ("first", "second"):
        write_file(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_a_fifo_is_written_into(tmp_path: Path) -> None:
    """Found: it was replaced by a file, as a device would have been; through a symlink, too."""
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    read: list[str] = []

    def take() -> None:
        read.append(fifo.read_text())

    for path in (fifo, link):
        reader = threading.Thread(target=take, daemon=True)
        reader.start()
        write_file(path, "text")
        reader.join(20)
        assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert read == ["text", "text"]


@pytest.mark.parametrize("vhost", ["null", '""', "5", '{"a": 1}', '"a\\u0000"'])
async def test_a_vhost_that_is_no_name_is_told_as_a_field(tmp_path: Path, vhost: str) -> None:
    """Found: `no vhost 'None'`, of which nobody had written."""
    file = tmp_path / "all.json"
    file.write_text(f'{{"version": 1, "vhost": {vhost}}}')
    with pytest.raises(
        InvalidDefinition, match=r"^.*/all[.]json: definitions: vhost is .*: want 1 to 255 bytes"
    ):
        await import_definitions(Namespace(file=file, vhost=None))


@pytest.mark.parametrize(
    "inner", ['"vhost": "/", "vhost": "b"', '"queues": [{"name": "a"}, {"name": "a", "name": "b"}]']
)
async def test_a_name_that_is_twice_in_one_object_is_refused(tmp_path: Path, inner: str) -> None:
    """Found: the later one was taken, and nobody was told that the earlier one was not."""
    file = tmp_path / "all.json"
    file.write_text(f'{{"version": 1, {inner}}}')
    with pytest.raises(
        DurableError, match=r"all[.]json: '(vhost|name)' appears twice in one object"
    ):
        await import_definitions(Namespace(file=file, vhost=None))
