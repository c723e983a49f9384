"""`mesh-broker serve --encrypt`, and `inspect`, `verify`, `salvage` with a key, without, and with another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from durable.log.encryption import is_encrypted
from durable.log.header import segment_name
from durable.log.store_keys import COPY_BYTES
from security.files import format_network_secret, new_network
from security.keys import derive
from tests.integration.test_cli_broker import Served, good
from tests.logs import NEW_SECRET, OLD_SECRET, encryption
from tests.offline import MESSAGES, Offline
from tests.shell import Shell
from tests.stores import (
    QUEUE,
    flip,
    payload,
    secret_file,
)

KEY_ID = derive(NEW_SECRET, "broker").key_id.hex()


class Directory(Offline):
    """An encrypted one; with files of the right secret and of another."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(path, capsys, encryption())
        for name, secret in (("right", NEW_SECRET), ("wrong", OLD_SECRET)):
            secret_file(path / name, format_network_secret(secret))

    def run(self, *words: str, secret: str | None = "right") -> tuple[int, str, str]:
        return super().run(*words, *(["--network-secret-file", secret] if secret else []))

    def json(self, *words: str, secret: str | None = "right") -> tuple[int, Any]:
        """Of its only vhost."""
        status, out, _ = self.run(*words, "--json", secret=secret)
        return status, json.loads(out)["vhosts"][0]


@pytest.fixture
def directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Directory:
    monkeypatch.chdir(tmp_path)
    return Directory(tmp_path, capsys)


def test_with_the_key_it_is_like_any_other(directory: Directory) -> None:
    status, row = directory.json("verify", "data")
    assert (status, row["ok"], row["records"], row["undecrypted"]) == (0, True, MESSAGES + 2, 0)
    _, row = directory.json("inspect", "data")
    assert row["encrypted"]
    assert [(one["name"], one["ready"]) for one in row["queues"]] == [(QUEUE, MESSAGES - 5)]
    _, out, _ = directory.run("inspect", "data")
    assert "with a data key" in out
    _, out, _ = directory.run("inspect", "data", "--queue", QUEUE, "--cat")
    assert out.encode() == b"".join(payload(number) + b"\n" for number in range(5, MESSAGES))
    _, out, _ = directory.run("inspect", "data", "--records")
    assert out.splitlines()[1].endswith("1 x jobs jobs@0")


def test_keys_come_from_the_environment_as_for_other_commands(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", "right")
    assert directory.run("inspect", "data", secret=None)[0] == 0
    monkeypatch.setenv("MESH_NETWORK_SECRET_FILE", "gone")
    status, _, said = directory.run("inspect", "data", secret=None)
    assert (status, said.count("\n"), "mesh keys new-network gone" in said) == (2, 1, True)


@pytest.mark.parametrize("words", [["inspect", "data"], ["salvage", "data", "--to", "new"]])
def test_a_missing_key_and_a_wrong_one_are_a_line(directory: Directory, words: list[str]) -> None:
    status, out, said = directory.run(*words, secret=None)
    assert (status, out, said.count("\n")) == (1, "", 1)
    assert (
        f"no key: {directory.log.relative_to(directory.path)} is encrypted for keys {KEY_ID}"
        in said
    )
    assert "MESH_NETWORK_SECRET_FILE" in said
    status, out, said = directory.run(*words, secret="wrong")
    assert (status, out, said.count("\n")) == (1, "", 1)
    assert KEY_ID in said
    assert derive(OLD_SECRET, "broker").key_id.hex() in said
    assert not (directory.path / "new" / "vhosts").exists()


def test_checksums_are_verified_without_a_key(directory: Directory) -> None:
    status, out, said = directory.run("verify", "data", secret=None)
    assert (status, out.endswith("no problems\n")) == (0, True)
    assert f"{MESSAGES + 2} records are encrypted and no key is given: only their checksums" in said
    status, row = directory.json("verify", "data", secret=None)
    assert (status, row["undecrypted"]) == (0, MESSAGES + 2)
    flip(directory.log / segment_name(1), 700)
    status, row = directory.json("verify", "data", secret=None)
    assert (status, len(row["damage"])) == (1, 1)
    assert directory.json("verify", "data")[1]["damage"] == row["damage"]


def test_json_names_no_copy_that_was_not_made_and_says_what_is_encrypted(
    directory: Directory,
) -> None:
    flip(directory.log / segment_name(1), 700)
    verified = directory.json("verify", "data")[1]
    inspected = directory.json("inspect", "data")[1]["report"]
    salvaged = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")[1][
        "report"
    ]
    assert not list(directory.log.glob("damaged.*"))
    for row in (verified, inspected, salvaged):
        assert [one["kept_as"] for one in row["damage"]] == [None]
        assert row["encrypted"]


def test_one_damaged_copy_of_the_keys_is_said_and_two_are_refused(directory: Directory) -> None:
    flip(directory.log / "keys", 50)
    for secret in ("right", None):
        status, row = directory.json("verify", "data", secret=secret)
        assert (status, row["problems"]) == (1, ["1 of the 2 copies in the file keys are damaged"])
    flip(directory.log / "keys", COPY_BYTES + 50)
    status, row = directory.json("verify", "data", secret=None)
    assert (status, row["problems"]) == (1, ["2 of the 2 copies in the file keys are damaged"])
    for words in (["verify", "data"], ["inspect", "data"], ["salvage", "data", "--to", "new"]):
        status, _, said = directory.run(*words)
        assert (status, said.count("\n"), "restore it from a backup" in said) == (1, 1, True)


def test_salvage_of_what_is_encrypted_is_encrypted(directory: Directory) -> None:
    flip(directory.log / segment_name(1), 700)
    status, row = directory.json("salvage", "data", "--to", "new", "--segment-size", "64K")
    assert (status, row["queues"]) == (0, {QUEUE: MESSAGES - 5})
    assert sum(row["copied"].values()) == MESSAGES + 1
    (log,) = (directory.path / "new").glob("vhosts/*/log")
    assert is_encrypted(log)
    written = b"".join(one.read_bytes() for one in log.glob("*"))
    assert b"message" not in written
    assert QUEUE.encode() not in written
    assert directory.run("inspect", "new", secret=None)[0] == 1
    assert directory.run("verify", "new")[0] == 0


def test_a_broker_that_encrypts_and_is_started_again(tmp_path: Path) -> None:
    shell = Shell(tmp_path, "durable.cli")
    shell.environment["MESH_SETTLE_S"] = "5"
    lines = [b"order %d of nobody" % number for number in range(100)]
    for words in (["--encrypt"], [], ["--encrypt"]):
        broker = Served(shell, "--segment-size", "1M", *words)
        try:
            recovered = broker.event("recovered")
            assert recovered["encrypted"] == bool(words)
            broker.event("ready")
            if recovered["formatted"]:
                good(shell, "declare-queue", "jobs-of-nobody")
                good(shell, "publish", "jobs-of-nobody", "--lines", stdin=b"\n".join(lines))
            done = good(shell, "consume", "jobs-of-nobody", "--count", "30")
            assert done.stdout.splitlines() == lines[:30]
            lines = lines[30:]
        finally:
            broker.stop()
            said = broker.words()
            broker.process.communicate()
        assert ("; encrypting" in said) == bool(words)
        if recovered["formatted"]:  # The second one does not encrypt what it adds.
            assert b"nobody" not in b"".join(map(content, tmp_path.rglob("data/**/*")))
    elsewhere = {"MESH_NETWORK_SECRET_FILE": str(tmp_path / "other.secret")}
    new_network(tmp_path / "other.secret")
    done = shell.run("serve", "--data", "data", environment=elsewhere)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"is encrypted for keys " in done.stderr


def content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
