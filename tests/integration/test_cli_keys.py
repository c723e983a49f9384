"""`mesh keys` and `mesh doctor`: what is made, what is shown, and what is called wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mesh.cli import main
from security.files import new_cluster, new_network
from tests.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in, without settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("MESH_NETWORK_SECRET_FILE", "MESH_KEYS_DIR", "MESH_NETWORK_SECRET", "MESH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_network_secret_is_made_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new-network"]) == 0
    assert (here / "network.secret").stat().st_mode & 0o777 == 0o600
    text = (here / "network.secret").read_text()
    capsys.readouterr()
    (here / "in").mkdir()
    for file, says in (
        ("network.secret", "network.secret exists and was not overwritten; `mesh keys rotate`"),
        ("gone/network.secret", "there is no directory gone: create it first"),
        ("in", "in is a directory: name a file in it"),
    ):
        assert main(["keys", "new-network", file]) == 1
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1
    assert (here / "network.secret").read_text() == text


def test_where_keys_are_is_asked_in_one_order(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options, then MESH_*, then mesh.toml; nothing is guessed."""
    with pytest.raises(SystemExit) as caught:
        main(["keys", "show"])
    assert caught.value.code == 2
    assert "MESH_KEYS_DIR" in capsys.readouterr().err
    new_network(here / "a.secret")
    (here / "mesh.toml").write_text("network_secret_file = 'a.secret'")
    assert main(["keys", "show"]) == 0
    assert capsys.readouterr().out.startswith("@door")
    monkeypatch.setenv("MESH_KEYS_DIR", "pairs")
    assert main(["keys", "new-cluster", "shop"]) == 0
    assert "pairs/shop.secret" in capsys.readouterr().err
    assert main(["keys", "show"]) == 0
    assert capsys.readouterr().out.startswith("shop")
    assert main(["keys", "new-cluster", "shop"]) == 1
    assert "exists and was not overwritten; `mesh keys rotate`" in capsys.readouterr().err
    for option in ("--keys-dir", "--dir"):
        assert main(["keys", "new-cluster", "shop", option, f"other{option}"]) == 0
        assert main(["keys", "check", option, f"other{option}"]) == 0


def test_check_names_what_a_killed_command_has_left(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: files with a secret in them, which nothing removed or named."""
    assert main(["keys", "new-cluster", "shop", "--keys-dir", "pairs"]) == 0
    assert main(["keys", "check", "--keys-dir", "pairs"]) == 0
    assert "left by" not in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        assert main(["keys", "new-cluster", "crm", "--keys-dir", "pairs"]) == 0
        assert main(["keys", "new-network", "pairs/network"]) == 0
    assert main(["keys", "check", "--network-secret-file", "pairs/network"]) == 0
    assert re.search(
        r"^.*pairs/\.network\.[0-9a-f]{8}: left by", capsys.readouterr().err, re.MULTILINE
    )
    assert main(["keys", "check", "--keys-dir", "pairs"]) == 0
    said = capsys.readouterr().err
    for name in ("crm.secret", "crm.public"):
        assert re.search(
            rf"^.*pairs/\.{re.escape(name)}\.[0-9a-f]{{8}}: left by a command", said, re.MULTILINE
        )


def test_keys_that_are_not_there_are_no_fault_of_a_variable(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: it blamed MESH_KEYS_DIR, which nobody had set."""
    assert main(["keys", "check", "--keys-dir", "nodir"]) == 1
    said = capsys.readouterr().err
    assert "nodir: keys_dir does not exist" in said
    assert "MESH_KEYS_DIR" not in said


def test_show_and_check_of_one_cluster(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("shop", "stock"):
        new_cluster(here / "keys", name)
    assert main(["keys", "show", "stock", "--keys-dir", "keys", "--json"]) == 0
    assert [row["cluster"] for row in json.loads(capsys.readouterr().out)] == ["stock"]
    assert main(["keys", "check", "nosuch", "--keys-dir", "keys"]) == 1
    assert "no key of nosuch in keys" in capsys.readouterr().err
    new_network(here / "n")
    assert main(["keys", "show", "nosuch", "--network-secret-file", "n", "--json"]) == 0
    assert [row["cluster"] for row in json.loads(capsys.readouterr().out)] == ["nosuch"]


def test_rotation_says_which_files_go_where(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_network(here / "n")
    network = ["--network-secret-file", "n"]
    assert main(["keys", "rotate", *network]) == 0
    assert "copy n to every node" in capsys.readouterr().err
    assert main(["keys", "show", *network, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["generation"] for row in rows] == ["new", "old"]
    assert main(["keys", "drop-old", *network]) == 0
    new_cluster(here / "keys", "shop")
    pairs = ["--keys-dir", "keys"]
    assert main(["keys", "rotate", "shop", *pairs]) == 0
    said = capsys.readouterr().err
    for name in (here / "keys").iterdir():
        assert name.name in said.replace("shop.old.*", "")
    assert main(["keys", "drop-old", *pairs, "shop"]) == 0
    for wrong in (["rotate", *pairs], ["rotate", "shop", *network], ["drop-old", *pairs]):
        with pytest.raises(SystemExit):
            main(["keys", *wrong])


def test_two_sources_of_keys_are_two_options(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: it said that a keyword contradicted, which nobody on a command line has given."""
    with pytest.raises(SystemExit) as ended:
        main(["keys", "show", "--keys-dir", "keys", "--network-secret-file", "n"])
    assert ended.value.code == 2
    assert "--network-secret-file: not allowed with argument --keys-dir" in capsys.readouterr().err


def rows_of(done_stdout: bytes) -> dict[str, tuple[bool, str]]:
    return {row["check"]: (row["ok"], row["text"]) for row in json.loads(done_stdout)}


def test_doctor_approves_what_works(shell: Shell) -> None:
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed):
        done = shell.run("doctor", "--json", "--target", "echo")
        rows = rows_of(done.stdout)
        assert all(ok for ok, _ in rows.values()), rows
        assert done.returncode == 0
        assert rows["seed"][1] == f"{shell.seed} answers"
        assert rows["members"][1] == "of echo"
        done = shell.run("doctor", "--json", "--seed", shell.seed, "--settle", "0.1")
        assert "seeds (option)" in rows_of(done.stdout)["settings"][1]
        done = shell.run("doctor", "--json", "--target", "other", "--settle", "0.5")
        assert rows_of(done.stdout)["members"] == (False, "no members of other; found: echo")
        other = shell.directory / "other.secret"
        new_network(other)
        done = shell.run("doctor", "--json", "--network-secret-file", str(other))
        rows = rows_of(done.stdout)
        assert rows["seed"][0], "something answers"
        assert not rows["members"][0]
        assert "the same network secret" in rows["members"][1]
        done = shell.run("doctor", "--listen", shell.seed)
        assert b"WRONG ports" in done.stdout


def test_doctor_asks_about_the_keys_that_there_are(shell: Shell) -> None:
    """Found: a shop that had not got the newest public key of its seed was asked for a network secret."""
    keys = shell.directory / "keys"
    new_cluster(keys, "shop")
    given = ("--cluster", "shop", "--keys-dir", str(keys), "--settle", "0.3")
    with shell.running("serve", "--echo", "--cluster", "echo", "--listen", shell.seed):
        ok, text = rows_of(shell.run("doctor", "--json", *given).stdout)["members"]
    assert not ok
    assert text.endswith("do they have our public key, and do we have their current one?")


def test_doctor_calls_dead_seeds_wrong(shell: Shell) -> None:
    done = shell.run("doctor", "--json")
    ok, text = rows_of(done.stdout)["seed"]
    assert (ok, done.returncode) == (False, 1)
    assert "refused, nothing listens there" in text
    done = shell.run("doctor", "--json", "--seed", "tcp://no.such.invalid:1")
    assert "cannot be resolved" in rows_of(done.stdout)["seed"][1]
    done = shell.run("doctor", "--json", "--listen", shell.seed)
    assert rows_of(done.stdout)["seed"] == (True, f"{shell.seed} is this node's own address")
    assert done.returncode == 0, "the first node of a network is alone"


@pytest.mark.parametrize(
    ("environment", "check", "says"),
    [
        ({"MESH_HEARTBEAT_S": "9"}, "settings", "heartbeat_s"),
        ({"MESH_SEEDS": "tcp://h"}, "settings", "tcp://h"),
        ({"MESH_LISTEN": "5600"}, "settings", "listen"),
        ({"MESH_NETWORK_SECRET_FILE": ""}, "settings", "mesh keys new-network"),
        ({"MESH_NETWORK_SECRET_FILE": "gone"}, "keys", "mesh keys new-network"),
        ({"MESH_LISTEN": "tcp://1.2.3.4:1"}, "ports", "choose another"),
        ({"MESH_ADVERTISE": "tcp://h:1"}, "ports", "1 ports for 2 keys"),
        ({"MESH_SEEDS": "", "MESH_CONFIG": "empty.toml"}, "finding", "no seeds are set"),
        ({"MESH_SEEDS_FILE": "gone"}, "file", "gone"),
        ({"MESH_DNS": "dns://no.such.invalid:1"}, "dns", "no.such.invalid"),
    ],
)
def test_doctor_reports_what_join_would_refuse(
    shell: Shell, environment: dict[str, str], check: str, says: str
) -> None:
    (shell.directory / "empty.toml").write_text("")
    done = shell.run("doctor", "--json", "--settle", "0.1", environment=environment)
    ok, text = rows_of(done.stdout)[check]
    assert (ok, done.returncode) == (False, 1)
    assert says in text


def test_doctor_says_which_keys_are_held_and_which_are_missing(shell: Shell) -> None:
    pairs = shell.directory / "pairs"
    for name in ("console", "shop", "stock"):
        new_cluster(pairs, name)
    (pairs / "stock.secret").unlink()
    keys = ["--keys-dir", str(pairs), "--settle", "0.1", "--json"]
    rows = rows_of(shell.run("doctor", *keys, "--target", "stock").stdout)
    assert rows["keys"][0]
    assert "held: console, shop; also trusted: stock" in rows["keys"][1]
    done = shell.run("doctor", *keys, "--target", "archive")
    assert (False, done.returncode) == (rows_of(done.stdout)["keys"][0], 1)
    assert "copy archive.public" in rows_of(done.stdout)["keys"][1]
    rows = rows_of(shell.run("doctor", *keys, "--cluster", "archive").stdout)
    assert "mesh keys new-cluster archive" in rows["keys"][1]


def test_who_has_no_pair_for_the_console_is_told_of_cluster(shell: Shell) -> None:
    pairs = shell.directory / "pairs"
    new_cluster(pairs, "shop")
    keys = ["--keys-dir", str(pairs), "--settle", "0.1"]
    done = shell.run("request", "databases", "x", *keys)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert (
        b"mesh keys new-cluster console`, or use --cluster NAME to join as a cluster whose"
        in done.stderr
    )
    assert b"--cluster NAME" in done.stderr
    done = shell.run("request", "databases", "x", *keys, "--cluster", "shop")
    assert b"no members of cluster 'databases'" in done.stderr


def test_a_secret_others_can_read_is_wrong(shell: Shell) -> None:
    (shell.directory / "network.secret").chmod(0o644)
    done = shell.run("doctor")
    assert done.returncode == 1
    assert b"chmod 600" in done.stdout
