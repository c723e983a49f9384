"""Key files: modes, rotation, and what is said of a file that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from security.errors import BadKeyFile, KeyChoice, UnsafeKeyFile
from security.files import (
    describe,
    drop_old_network,
    load_keyring,
    new_cluster,
    new_network,
    parse_network_secret,
    rotate_cluster,
    rotate_network,
)
from security.keyring import FileKeyring


def load(**given: object) -> object:
    sources = {"network_secret": None, "network_secret_file": None, "keys_dir": None, **given}
    return load_keyring(**sources)  # type: ignore[arg-type]


def test_a_network_secret_is_made_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "network.secret"
    text = new_network(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() == text
    assert len(parse_network_secret(text, "x")[0]) == 32
    assert load(network_secret_file=path)
    assert load(network_secret=text)
    with pytest.raises(FileExistsError):
        new_network(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_a_secret_that_others_can_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "network.secret"
    new_network(path)
    path.chmod(mode)
    with pytest.raises(UnsafeKeyFile, match=f"{mode:04o}.*chmod 600"):
        load(network_secret_file=path)
    pair = new_cluster(tmp_path / "keys", "databases")
    secret = tmp_path / "keys" / f"{pair.cluster}.secret"
    secret.chmod(mode)
    with pytest.raises(UnsafeKeyFile):
        load(keys_dir=tmp_path / "keys")


def test_a_link_to_a_readable_file_does_not_help(tmp_path: Path) -> None:
    readable = tmp_path / "readable"
    readable.write_text("mesh-network-1-" + "a" * 52)
    readable.chmod(0o644)
    link = tmp_path / "network.secret"
    os.symlink(readable, link)
    with pytest.raises(UnsafeKeyFile):
        load(network_secret_file=link)


def test_rotation_of_a_network(tmp_path: Path) -> None:
    path = tmp_path / "network.secret"
    first = parse_network_secret(new_network(path), "x")[0]
    rotate_network(path)
    secrets = parse_network_secret(path.read_text(), "x")
    assert secrets[1] == first
    assert secrets[0] != first
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadKeyFile, match="drop the old"):
        rotate_network(path)
    assert [row.generation for row in describe(network_secret_file=path)] == ["new", "old"]
    assert drop_old_network(path)
    assert not drop_old_network(path)
    assert parse_network_secret(path.read_text(), "x") == secrets[:1]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["network.secret"], "no leftovers"


def test_cluster_files(tmp_path: Path) -> None:
    pair = new_cluster(tmp_path, "databases")
    (tmp_path / "databases.secret").rename(tmp_path / "elsewhere")
    ring = load(keys_dir=tmp_path)
    assert isinstance(ring, FileKeyring)
    assert ring.trusted("databases") == (pair.public_half(),)
    (tmp_path / "elsewhere").rename(tmp_path / "databases.secret")
    second = rotate_cluster(tmp_path, "databases")
    ring = load(keys_dir=tmp_path)
    assert isinstance(ring, FileKeyring)
    assert ring.own("databases") == (second, pair)
    with pytest.raises(BadKeyFile, match="drop the old"):
        rotate_cluster(tmp_path, "databases")


@pytest.mark.parametrize("text", ["", "nonsense", "mesh-network-1-short", "mesh-network-1-!!!", "mesh-network-1-" + "a" * 52 + " x"])  # fmt: skip
def test_bad_secrets_are_named(text: str) -> None:
    with pytest.raises(BadKeyFile, match="from here"):
        parse_network_secret(text, "from here")


def test_the_wrong_key_in_a_file_is_named(tmp_path: Path) -> None:
    new_cluster(tmp_path, "databases")
    (tmp_path / "databases.public").rename(tmp_path / "caches.public")
    with pytest.raises(BadKeyFile, match="holds the key of cluster 'databases'"):
        load(keys_dir=tmp_path)
    (tmp_path / "caches.public").write_text("hello")
    with pytest.raises(BadKeyFile, match="not a key file"):
        load(keys_dir=tmp_path)
    with pytest.raises(BadKeyFile, match="no directory"):
        load(keys_dir=tmp_path / "nothing")


def test_exactly_one_source(tmp_path: Path) -> None:
    with pytest.raises(KeyChoice, match="mesh keys new-network"):
        load()
    with pytest.raises(KeyChoice, match="not several"):
        load(network_secret="a", keys_dir=tmp_path)
    with pytest.raises(BadKeyFile):
        new_cluster(tmp_path, "../evil")
