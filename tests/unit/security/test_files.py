"""Key files: modes, rotation, and what is said of a file that cannot be used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from security.errors import BadKeyFile, KeyChoice, SecurityError, UnsafeKeyFile
from security.files import (
    KeyRow,
    drop_old_cluster,
    drop_old_network,
    format_network_secret,
    list_keys,
    load_keyring,
    new_cluster,
    new_network,
    parse_network_secret,
    read_pairs,
    rotate_cluster,
    rotate_network,
)
from security.keyring import FileKeyring, NetworkKeyring


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
    assert [row.generation for row in list_keys(network_secret_file=path)] == ["new", "old"]
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
    with pytest.raises(BadKeyFile, match="contains the key of cluster 'databases'"):
        load(keys_dir=tmp_path)
    (tmp_path / "caches.public").write_text("hello")
    with pytest.raises(BadKeyFile, match="not a key file"):
        load(keys_dir=tmp_path)
    with pytest.raises(BadKeyFile, match="keys_dir does not exist"):
        load(keys_dir=tmp_path / "nothing")


def test_a_network_secret_among_keys_of_clusters_is_told_from_nonsense(tmp_path: Path) -> None:
    """It was called no key file as `mesh keys` makes it, and `mesh keys` had made it."""
    new_network(tmp_path / "network.secret")
    with pytest.raises(BadKeyFile, match=r"a network secret.*: set network_secret_file to it"):
        load(keys_dir=tmp_path)


def test_a_directory_that_cannot_be_looked_at_is_named() -> None:
    """It was an OSError that nobody who joins expects: too long a name, or no right to enter."""
    with pytest.raises(BadKeyFile, match="d: File name too long"):
        load(keys_dir=Path("d" * 300))


def test_exactly_one_source(tmp_path: Path) -> None:
    with pytest.raises(KeyChoice) as caught:
        load()
    for word in ("network_secret", "MESH_NETWORK_SECRET", "network_secret_file", "keys_dir"):
        assert word in str(caught.value)
    assert "mesh keys new-network" in str(caught.value)
    assert "mesh keys new-cluster" in str(caught.value)
    with pytest.raises(KeyChoice, match="not several"):
        load(network_secret="a", keys_dir=tmp_path)


SECRET_FORM = "mesh-network-1-aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypq"


def test_the_form_of_a_network_secret_is_pinned() -> None:
    assert format_network_secret(bytes(range(32))) == SECRET_FORM
    assert parse_network_secret(SECRET_FORM, "x") == [bytes(range(32))]


@pytest.mark.parametrize("between", ["\n", " ", "\t", "\r\n\n"])
def test_two_secrets_in_one_text_are_newest_first(between: str) -> None:
    old = format_network_secret(bytes(32))
    assert parse_network_secret(f"{SECRET_FORM}{between}{old}\n", "x") == [
        bytes(range(32)),
        bytes(32),
    ]
    ring = load(network_secret=f"{SECRET_FORM}{between}{old}")
    assert isinstance(ring, NetworkKeyring)
    assert ring.own("a")[0] == NetworkKeyring([bytes(range(32))]).own("a")[0]
    assert len(ring.own("a")) == 2


def test_an_error_never_shows_a_secret() -> None:
    for text in (
        SECRET_FORM[:-1],
        f"{SECRET_FORM} {SECRET_FORM}",
        SECRET_FORM.replace("-1-", "-2-"),
    ):
        with pytest.raises(BadKeyFile) as caught:
            parse_network_secret(text, "network_secret")
        assert "aaaqeayeau" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_the_same_secret_twice_is_refused_and_can_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "network.secret"
    text = new_network(path)
    path.write_text(f"{text}\n{text}\n")
    with pytest.raises(BadKeyFile, match="twice"):
        load(network_secret_file=path)
    drop_old_network(path)
    assert path.read_text() == f"{text}\n"


def test_a_secret_keeps_its_link_when_it_rotates(tmp_path: Path) -> None:
    new_network(tmp_path / "real")
    (tmp_path / "network.secret").symlink_to("real")
    rotate_network(tmp_path / "network.secret")
    assert (tmp_path / "network.secret").is_symlink()
    assert len((tmp_path / "real").read_text().split()) == 2


def test_a_planted_link_does_not_choose_where_a_secret_goes(tmp_path: Path) -> None:
    (tmp_path / "network.secret").symlink_to("elsewhere")
    with pytest.raises(FileExistsError):
        new_network(tmp_path / "network.secret")
    assert [one.name for one in tmp_path.iterdir()] == ["network.secret"], "nothing was left behind"


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "network.secret"
    text = new_network(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        rotate_network(path)
    with pytest.raises(OSError, match="No space"):
        new_network(tmp_path / "other")
    assert path.read_text() == f"{text}\n"
    assert [one.name for one in tmp_path.iterdir()] == ["network.secret"]


def test_secrets_are_never_open_to_others_not_even_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    fsync = os.fsync

    def look(file: int) -> None:
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode):
            seen.append((os.readlink(f"/proc/self/fd/{file}"), stat.S_IMODE(status.st_mode)))
        fsync(file)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        new_network(tmp_path / "network.secret")
        rotate_network(tmp_path / "network.secret")
        new_cluster(tmp_path / "keys", "a")
    finally:
        os.umask(before)
    assert [mode for name, mode in seen if ".secret" in name] == [0o600] * 3
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_an_existing_cluster_is_left_as_it_is(tmp_path: Path) -> None:
    pair = new_cluster(tmp_path, "a")
    for kept in ("a.public", "a.secret"):
        saved = {one: (tmp_path / one).read_text() for one in ("a.public", "a.secret")}
        other = "a.secret" if kept == "a.public" else "a.public"
        (tmp_path / other).unlink()
        with pytest.raises(FileExistsError, match=kept):
            new_cluster(tmp_path, "a")
        assert [one.name for one in tmp_path.iterdir()] == [kept], "not half of another pair"
        (tmp_path / other).write_text(saved[other])
        (tmp_path / other).chmod(0o600)
    assert read_pairs(tmp_path) == [pair]


@pytest.mark.parametrize("name", ["", "../evil", "A", "a/b", "-a", "a" * 64, "a.old", "@door"])
def test_names_that_cannot_be_files(tmp_path: Path, name: str) -> None:
    """`a.old` would be the old generation of `a`."""
    for work in (new_cluster, rotate_cluster, drop_old_cluster):
        with pytest.raises(BadKeyFile, match="cluster"):
            work(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", range(4))
def test_a_rotation_killed_halfway_still_loads_and_can_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Killed before its n-th file appears."""
    first = new_cluster(tmp_path, "a")
    before = (tmp_path / "a.public").read_text()
    done = 0

    def killed(real: object) -> object:
        def call(*args: object) -> None:
            nonlocal done
            if done == stop:
                raise KeyboardInterrupt
            done += 1
            real(*args)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed(os.link))
        patched.setattr(os, "replace", killed(os.replace))
        with pytest.raises(KeyboardInterrupt):
            rotate_cluster(tmp_path, "a")
    ring = load(keys_dir=tmp_path)
    assert isinstance(ring, FileKeyring)
    assert ring.own("a")[-1] == first, "callers that know only the first key are still served"
    assert len(ring.own("a")) == (2 if stop == 3 else 1)
    if stop == 3:
        assert (tmp_path / "a.public").read_text() == before
        with pytest.raises(BadKeyFile, match=r"a\.public: is not the public half of a\.secret"):
            list_keys(keys_dir=tmp_path)
    assert drop_old_cluster(tmp_path, "a") is (stop > 0)
    rotate_cluster(tmp_path, "a")
    assert [row.generation for row in list_keys(keys_dir=tmp_path)] == ["new", "old"]


@pytest.mark.parametrize("stop", range(4))
def test_a_rotation_killed_halfway_is_completed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Found: it was refused as in progress, and to drop the old generation first, as told, either kept the key that
    was to be replaced, or lost the only one that callers have."""
    first = new_cluster(tmp_path, "a")
    files = iter(range(4))

    def killed(real: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            if next(files) == stop:
                raise KeyboardInterrupt
            real(*args)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed(os.link))
        patched.setattr(os, "replace", killed(os.replace))
        with pytest.raises(KeyboardInterrupt):
            rotate_cluster(tmp_path, "a")
    second = rotate_cluster(tmp_path, "a")
    assert load_keyring(keys_dir=tmp_path).own("a") == (second, first)
    assert [row.generation for row in list_keys(keys_dir=tmp_path)] == ["new", "old"]
    with pytest.raises(BadKeyFile, match="in progress"):
        rotate_cluster(tmp_path, "a")


def test_dropping_the_old_generation(tmp_path: Path) -> None:
    new_cluster(tmp_path, "a")
    second = rotate_cluster(tmp_path, "a")
    assert drop_old_cluster(tmp_path, "a")
    assert not drop_old_cluster(tmp_path, "a")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.public", "a.secret"]
    assert read_pairs(tmp_path) == [second]


def test_only_a_secret_can_be_rotated(tmp_path: Path) -> None:
    new_cluster(tmp_path, "a")
    (tmp_path / "a.secret").unlink()
    with pytest.raises(BadKeyFile, match=r"a\.secret: No such file"):
        rotate_cluster(tmp_path, "a")
    assert [one.name for one in tmp_path.iterdir()] == ["a.public"]


def test_rows_say_what_there_is_and_no_secret(tmp_path: Path) -> None:
    old = new_cluster(tmp_path / "keys", "a")
    new = rotate_cluster(tmp_path / "keys", "a")
    other = new_cluster(tmp_path / "keys", "b")
    (tmp_path / "keys/b.secret").unlink()
    rows = list_keys(keys_dir=tmp_path / "keys")
    assert rows == [
        KeyRow("a", new.key_id.hex(), "new", True),
        KeyRow("a", old.key_id.hex(), "old", True),
        KeyRow("b", other.key_id.hex(), "new", False),
    ]
    text = new_network(tmp_path / "network.secret")
    (row,) = list_keys(network_secret_file=tmp_path / "network.secret")
    assert (row.cluster, row.generation, row.has_secret) == ("@door", "new", True)
    assert text not in repr(row)


KEY = "00" * 32


@pytest.mark.parametrize(
    "content",
    [
        b"", b"hello", f"WORD a {KEY}".encode(), f"WORD a {KEY} {KEY[2:]}".encode(),
        f"WORD a {KEY[2:]} {KEY}".encode(), f"WORD a {KEY} {KEY}00".encode(),
        f"WORD a {KEY}00 {KEY}".encode(), f"WORD a {KEY} {KEY} x".encode(),
        f"WORD a {KEY} {'zz' * 32}".encode(), f"other a {KEY} {KEY}".encode(),
        f"WORD A {KEY} {KEY}".encode(), f"WORD b {KEY} {KEY}".encode(), b"\xff\xfe" * 20,
        f"WORD a {KEY} {KEY}".encode() + b" " * 5000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["secret", "public"])
def test_a_bad_key_file_is_named_and_never_half_believed(
    tmp_path: Path, kind: str, content: bytes
) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content.replace(b"WORD", f"mesh-cluster-{kind}-1".encode()))
    path.chmod(0o600)
    with pytest.raises(BadKeyFile, match=rf"a\.{kind}|cluster 'A'"):
        load(keys_dir=tmp_path)


def test_a_good_key_file_by_hand(tmp_path: Path) -> None:
    """Or the refusals above would prove nothing."""
    path = tmp_path / "a.public"
    path.write_text(f"mesh-cluster-public-1 a {KEY} {KEY}")
    assert [pair.public for pair in read_pairs(tmp_path)] == [bytes(32)]


def test_what_is_no_file(tmp_path: Path) -> None:
    for name in ("a.public", "b.secret", "network.secret"):
        (tmp_path / name).mkdir(mode=0o700)
    for given in ({"keys_dir": tmp_path}, {"network_secret_file": tmp_path / "network.secret"}):
        with pytest.raises(SecurityError, match="directory"):
            load(**given)
    with pytest.raises(BadKeyFile, match="No such file") as caught:
        load(network_secret_file=tmp_path / "missing")
    assert caught.value.path == tmp_path / "missing"


def test_numbers_of_an_unsafe_file_are_attributes(tmp_path: Path) -> None:
    new_network(tmp_path / "n")
    (tmp_path / "n").chmod(0o644)
    with pytest.raises(UnsafeKeyFile) as caught:
        load(network_secret_file=tmp_path / "n")
    assert (caught.value.path, caught.value.mode) == (tmp_path / "n", 0o644)


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: no key was in it, and a node was told to make one."""
    new_cluster(tmp_path, "a")

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        patched.setattr(os, "scandir", refuse)
        with pytest.raises(BadKeyFile, match=f"{tmp_path}: Permission denied"):
            read_pairs(tmp_path)
    assert [pair.cluster for pair in read_pairs(tmp_path)] == ["a"]


def test_a_file_where_a_directory_is_wanted(tmp_path: Path) -> None:
    """Found: it said that it was not overwritten, and advised to make that very directory."""
    file = tmp_path / "keys"
    file.touch()
    for work in (read_pairs, partial(new_cluster, cluster="a")):
        with pytest.raises(BadKeyFile, match="keys_dir is not a directory; name another"):
            work(file)


def test_a_mistyped_name_is_no_rotation_that_is_over(tmp_path: Path) -> None:
    """Found: there was no old generation of it, with exit status 0, while the stolen one was still valid."""
    new_cluster(tmp_path, "shop")
    rotate_cluster(tmp_path, "shop")
    with pytest.raises(BadKeyFile, match=r"there is no new key of shpo"):
        drop_old_cluster(tmp_path, "shpo")
    with pytest.raises(BadKeyFile, match=r"shpo\.secret: No such file; .* correct the name"):
        rotate_cluster(tmp_path, "shpo")
    (tmp_path / "shop.secret").unlink()
    assert drop_old_cluster(tmp_path, "shop"), "where only the public half is"


def test_the_only_key_there_is_is_not_dropped(tmp_path: Path) -> None:
    """Found: of a directory to which only the old generation had been copied."""
    new_cluster(tmp_path, "a")
    first = rotate_cluster(tmp_path, "a")
    for kind in ("secret", "public"):
        (tmp_path / f"a.{kind}").unlink()
    with pytest.raises(BadKeyFile, match="there is no new key of a;"):
        drop_old_cluster(tmp_path, "a")
    assert [pair.key_id for pair in read_pairs(tmp_path)] != [first.key_id]
    assert len(read_pairs(tmp_path)) == 1
