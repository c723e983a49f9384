"""Settings: who wins, what is refused, and with which words."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mesh.config import AT_LEAST, AT_MOST, RELATIONS, MeshConfig
from mesh.errors import ConfigError
from mesh.settings import FILE_CHARACTERS_MAX, TYPES, key_source, list_settings, load_config
from security.files import format_network_secret

SECRET = format_network_secret(bytes(32))


def load(
    directory: Path, keywords: dict[str, Any] | None = None, toml: str = "", **environ: str
) -> MeshConfig:
    if toml:
        (directory / "mesh.toml").write_text(toml)
    return load_config(
        ("shop",), keywords or {}, has_keyring=True, environ=environ, directory=directory
    )


def test_keywords_win_over_environment_over_file(tmp_path: Path) -> None:
    toml = "heartbeat_s = 0.5\nsettle_s = 9\ndrain_s = 7"
    config = load(tmp_path, {"settle_s": 1}, toml, MESH_SETTLE_S="2", MESH_DRAIN_S="3")
    assert (config.settle_s, config.drain_s, config.heartbeat_s) == (1.0, 3.0, 0.5)
    rows = list_settings({"settle_s": 1}, environ={"MESH_DRAIN_S": "3"}, directory=tmp_path)
    origins = {row.name: row.origin for row in rows}
    assert origins["settle_s"] == "keyword"
    assert origins["drain_s"] == "environment variable"
    assert origins["heartbeat_s"].endswith("mesh.toml")
    assert origins["window_bytes"] == "default"


@pytest.mark.parametrize(
    ("keywords", "toml", "environ", "words"),
    [
        ({"sedes": []}, "", {}, ["keyword sedes", "seeds"]),
        ({}, "lisen = 'x'", {}, ["mesh.toml lisen", "listen"]),
        ({}, "", {"MESH_WINDOW_BYTE": "1"}, ["MESH_WINDOW_BYTE", "MESH_WINDOW_BYTES"]),
        ({"concurrency": "many"}, "", {}, ["concurrency", "whole number", "'many'"]),
        ({}, "", {"MESH_ZEROCONF": "perhaps"}, ["MESH_ZEROCONF", "true or false", "perhaps"]),
        ({"concurrency": 0}, "", {}, ["concurrency", "at least 1", "0"]),
        ({"dead_s": 1.0}, "", {}, ["dead_s", "1.0", "suspect_s"]),
        ({"window_bytes": 1000}, "", {}, ["window_bytes", "1000", "frame_bytes_max"]),
        ({"network_secret": "a", "keys_dir": "b"}, "", {}, ["network_secret", "keys_dir"]),
        ({}, "not toml", {}, ["mesh.toml: ", "line 1"]),
        ({}, "", {"MESH_CONFIG": "/does/not/exist.toml"}, ["/does/not/exist.toml"]),
        ({"settle_s": True}, "", {}, ["settle_s", "True"]),
        ({"heartbeat_s": math.nan}, "", {}, ["heartbeat_s", "nan"]),
        ({}, "", {"MESH_HEARTBEAT_S": "inf"}, ["MESH_HEARTBEAT_S", "a number of seconds", "inf"]),
        ({}, 'zeroconf = "yes"', {}, ["mesh.toml zeroconf", "true or false", "'yes'"]),
        ({"zeroconf": "no"}, "", {}, ["zeroconf", "true or false"]),
        ({}, 'heartbeat_s = "1"', {}, ["mesh.toml heartbeat_s", "a number of seconds", "'1'"]),
        ({"concurrency": "64"}, "", {}, ["concurrency", "a whole number", "'64'"]),
        ({"window_bytes": "lots"}, "", {}, ["a number of bytes, such as 65536 or 64KiB"]),
        ({"seeds": 7}, "", {}, ["seeds", "a list of texts, or one text separated by commas"]),
        ({"seeds": b"tcp://a:1"}, "", {}, ["seeds", "a list of texts"]),
        ({"keys_dir": ""}, "", {}, ["keyword keys_dir", "a path", "''"]),
        ({"keys_dir": "~nosuchuser/keys"}, "", {}, ["keyword keys_dir", "a path", "~nosuchuser"]),
        ({}, "", {"MESH_SEEDS_FILE": "~nosuchuser/x"}, ["MESH_SEEDS_FILE", "a path", "~nosuch"]),
        ({"seeds_file": "a\0b"}, "", {}, ["keyword seeds_file", "a path", r"'a\x00b'"]),
        ({"seeds_file": "a\ud800b"}, "", {}, ["keyword seeds_file", "a path"]),
        ({}, "listen = ''", {}, ["mesh.toml listen", "text"]),
        ({}, "", {"MESH_CLUSTER": "x"}, ["MESH_CLUSTER", "unknown setting", "--cluster"]),
        ({}, "", {"MESH_FROB": ""}, ["MESH_FROB", "unknown setting"]),
        ({"service": "x"}, "", {}, ["keyword service", "mesh.join(CLUSTER or SERVICE)"]),
        (
            {},
            "zeroconf = false\nzeroconf_interfaces = ['eth0']",
            {},
            ["mesh.toml: zeroconf_interfaces is set, but zeroconf is off"],
        ),
        ({"seed": "x"}, "", {}, ["keyword seed", "did you mean seeds?"]),
        ({"timeout": 1}, "", {}, ["keyword timeout", "did you mean request_timeout_s?"]),
        ({}, "[mesh]\nheartbeat_s = 1", {}, ["mesh.toml mesh", "write one setting per line"]),
        ({"lifetime_s": 8 * 86400}, "", {}, ["lifetime_s", "604800", "691200"]),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, keywords: dict[str, Any], toml: str, environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, keywords, toml, **environ)
    for word in words:
        assert word in str(caught.value)


def test_a_current_directory_that_is_gone_has_no_mesh_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: joining raised FileNotFoundError, whatever the settings."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    config = load_config(("shop",), {"network_secret": "x"}, environ={})
    assert config.network_secret == "x"


def test_a_directory_that_cannot_be_looked_into_is_an_error_with_its_name() -> None:
    """As where another user's is the current one: PermissionError left `join`."""
    directory = Path("d" * 300)
    with pytest.raises(ConfigError, match=r"d/mesh\.toml: cannot be read"):
        load_config(("shop",), {"network_secret": "x"}, environ={}, directory=directory)


def test_who_names_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Found: "nope: cannot be read", of a variable that had been forgotten."""
    named = {"MESH_CONFIG": str(tmp_path / "nope")}
    wanted = r"nope \(MESH_CONFIG\): cannot be read: No such file or directory$"
    with pytest.raises(ConfigError, match=wanted):
        load_config(("shop",), {"network_secret": "x"}, environ=named)


def test_a_file_nested_too_deeply_is_an_error_with_its_name(tmp_path: Path) -> None:
    """Found: a RecursionError, on the command line with its stack trace."""
    with pytest.raises(ConfigError, match=r"mesh\.toml: .*recursion"):
        load(tmp_path, toml="seeds = " + "[" * 10_000)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_secret_in_a_file_for_others_is_refused(tmp_path: Path, mode: int) -> None:
    """Found: a key file was, and this was not, which says the same."""
    path = tmp_path / "mesh.toml"
    path.write_text(f"network_secret = '{SECRET}'")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode 0{mode:o}.: chmod 600 {path}") as caught:
        load(tmp_path)
    assert SECRET not in str(caught.value)
    path.chmod(0o600)
    assert load(tmp_path).network_secret == SECRET
    path.write_text("network_secret_file = 'secret'")
    path.chmod(mode)
    assert load(tmp_path).network_secret is None


def test_a_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: it was parsed in the loop, which stood still meanwhile: 1 MiB took a second."""
    line, parsed = "heartbeat_s = 0.5\n", list[str]()

    def parse(text: str) -> dict[str, Any]:
        parsed.append(text)
        return {}

    monkeypatch.setattr("tomllib.loads", parse)
    comment = "#" * (FILE_CHARACTERS_MAX - len(line))
    load(tmp_path, toml=line + comment)
    assert parsed == [line + comment]
    with pytest.raises(ConfigError, match=r"mesh\.toml: more than 262144 characters, so not"):
        load(tmp_path, toml=line + comment + "#")
    assert len(parsed) == 1


def test_text_becomes_what_the_setting_is(tmp_path: Path) -> None:
    config = load(
        tmp_path, MESH_WINDOW_BYTES="8MiB", MESH_SEEDS="tcp://a:1, tcp://b:2", MESH_ZEROCONF="no",
        MESH_SEEDS_FILE="/etc/seeds",
    )  # fmt: skip
    assert config.window_bytes == 8 << 20
    assert config.seeds == ("tcp://a:1", "tcp://b:2")
    assert config.zeroconf is False
    assert config.seeds_file == Path("/etc/seeds")


def test_one_text_is_a_list_and_bytes_may_have_a_unit(tmp_path: Path) -> None:
    """`seeds="tcp://a:1"` is one seed, not nine letters."""
    toml = "dns = 'dns://a:1'\nframe_bytes_max = '512KiB'"
    config = load(tmp_path, {"seeds": "tcp://a:1", "window_bytes": "8MiB"}, toml)
    assert (config.seeds, config.dns) == (("tcp://a:1",), ("dns://a:1",))
    assert (config.window_bytes, config.frame_bytes_max) == (8 << 20, 512 << 10)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    config = load(
        tmp_path, {"network_secret": "x"}, "seeds = ['tcp://a:1']", MESH_KEYS_DIR="",
        MESH_SEEDS="", MESH_CONFIG="", MESH_CONCURRENCY="", MESH_NETWORK_SECRET="",
    )  # fmt: skip
    assert (config.keys_dir, config.seeds, config.concurrency) == (None, ("tcp://a:1",), 64)


def test_the_source_of_keys_says_who_set_it(tmp_path: Path) -> None:
    environ = {"MESH_KEYS_DIR": "/keys"}
    assert key_source({}, environ=environ, directory=tmp_path) == (
        {"keys_dir": Path("/keys")}, "environment variable",
    )  # fmt: skip
    assert key_source({}, environ={}, directory=tmp_path) == ({}, "nowhere")


def test_a_higher_source_of_keys_replaces_a_lower_one(tmp_path: Path) -> None:
    config = load(tmp_path, {"network_secret": "x"}, "keys_dir = '/keys'")
    assert (config.network_secret, config.keys_dir) == ("x", None)
    assert "network_secret=" not in repr(config), "a secret is not shown"
    shown = {row.name: row.value for row in list_settings({"network_secret": "x"}, environ={})}
    assert shown["network_secret"] == "(set)"


@pytest.mark.parametrize(
    ("keywords", "toml", "environ"),
    [
        ({"network_secret": SECRET.encode()}, "", {}),  # As read from a file.
        ({"network_secret": [SECRET, SECRET]}, "", {}),  # Two generations.
        ({}, f"network_secret = ['{SECRET}']", {}),
        ({"network_secret_file": SECRET}, "", {}),
        ({"network_secret_file": Path(SECRET)}, "", {}),
        ({}, "", {"MESH_NETWORK_SECRET_FILE": f"{SECRET} {SECRET}"}),
        ({}, "", {"MESH_KEYS_DIR": SECRET}),
        ({}, f"seeds = [['{SECRET}']]", {}),
    ],
)
def test_no_secret_is_in_an_error(
    tmp_path: Path, keywords: dict[str, Any], toml: str, environ: dict[str, str]
) -> None:
    """Found: a secret given as bytes, in a list, or in place of its file's path was in the error, and so in logs."""
    with pytest.raises(ConfigError, match=r"want .*, got a secret") as caught:
        load(tmp_path, keywords, toml, **environ)
    assert SECRET not in str(caught.value)


def test_without_keys_the_error_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mesh keys new-network"):
        load_config(("shop",), {}, environ={}, directory=tmp_path)


@pytest.mark.parametrize("name", AT_LEAST)
def test_every_limit_is_enforced_with_its_number(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        MeshConfig(clusters=("x",), **{name: AT_LEAST[name] - 1})  # type: ignore[arg-type]
    assert str(AT_LEAST[name]) in str(caught.value)


@pytest.mark.parametrize(("name", "factor", "other"), RELATIONS)
def test_every_limit_that_depends_on_another_is_enforced_with_its_number(
    name: str, factor: float, other: str
) -> None:
    """Found: NaN, which is less than nothing, was taken."""
    least = factor * getattr(MeshConfig(clusters=("x",)), other)
    with pytest.raises(ConfigError, match=f"{name}: .* is too small for {other}") as caught:
        MeshConfig(clusters=("x",), **{name: least - 0.01})
    assert str(least) in str(caught.value)
    with pytest.raises(ConfigError, match=f"{name}: .* got nan|{name}: nan is too small"):
        MeshConfig(clusters=("x",), **{name: math.nan})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AT_MOST)
def test_what_nothing_could_hold_is_refused_with_the_most_there_can_be(name: str) -> None:
    for value in (AT_MOST[name] + 1, 10**400):
        with pytest.raises(ConfigError, match=f"{name}: must be at most {AT_MOST[name]},"):
            MeshConfig(clusters=("x",), **{name: value})  # type: ignore[arg-type]


def test_every_setting_is_documented_and_checked() -> None:
    text = (Path(__file__).parents[3] / "mesh/config.py").read_text()
    checked = set(AT_LEAST) | {name for name, _, _ in RELATIONS}
    for field in fields(MeshConfig):
        assert f"\n    {field.name}: " in text
        if field.name in TYPES and TYPES[field.name] in ("int", "float"):
            assert field.name in checked, f"{field.name} may have any value"


@pytest.mark.parametrize(
    "clusters",
    [
        (),
        tuple(f"c{n}" for n in range(17)),
        ("a", "a"),
        ("UPPER",),
        ("with space",),
        ("",),
        ([], []),
    ],
)
def test_clusters_are_checked(clusters: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (ConfigError or InvalidName, both ValueErrors)
        MeshConfig(clusters=clusters)
