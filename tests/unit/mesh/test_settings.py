"""Settings: who wins, what is refused, and with which words."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mesh.config import AT_LEAST, RELATIONS, MeshConfig
from mesh.errors import ConfigError
from mesh.settings import TYPES, explain, load_config


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
    rows = explain({"settle_s": 1}, environ={"MESH_DRAIN_S": "3"}, directory=tmp_path)
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
        ({}, "not toml", {}, ["mesh.toml"]),
        ({}, "", {"MESH_CONFIG": "/does/not/exist.toml"}, ["/does/not/exist.toml"]),
        ({"settle_s": True}, "", {}, ["settle_s", "True"]),
        ({"heartbeat_s": math.nan}, "", {}, ["heartbeat_s", "nan"]),
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


def test_text_becomes_what_the_setting_is(tmp_path: Path) -> None:
    config = load(
        tmp_path, MESH_WINDOW_BYTES="8MiB", MESH_SEEDS="tcp://a:1, tcp://b:2", MESH_ZEROCONF="no",
        MESH_SEEDS_FILE="/etc/seeds",
    )  # fmt: skip
    assert config.window_bytes == 8 << 20
    assert config.seeds == ("tcp://a:1", "tcp://b:2")
    assert config.zeroconf is False
    assert config.seeds_file == Path("/etc/seeds")


def test_a_higher_source_of_keys_replaces_a_lower_one(tmp_path: Path) -> None:
    config = load(tmp_path, {"network_secret": "x"}, "keys_dir = '/keys'")
    assert (config.network_secret, config.keys_dir) == ("x", None)
    assert "network_secret=" not in repr(config), "a secret is not shown"
    shown = {row.name: row.value for row in explain({"network_secret": "x"}, environ={})}
    assert shown["network_secret"] == "(set)"


def test_without_keys_the_error_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mesh keys new-network"):
        load_config(("shop",), {}, environ={}, directory=tmp_path)


@pytest.mark.parametrize("name", AT_LEAST)
def test_every_limit_is_enforced_with_its_number(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        MeshConfig(clusters=("x",), **{name: AT_LEAST[name] - 1})  # type: ignore[arg-type]
    assert str(AT_LEAST[name]) in str(caught.value)


def test_every_setting_is_documented_and_checked() -> None:
    text = (Path(__file__).parents[3] / "mesh/config.py").read_text()
    checked = set(AT_LEAST) | {name for name, _, _ in RELATIONS}
    for field in fields(MeshConfig):
        assert f"\n    {field.name}: " in text
        if field.name in TYPES and TYPES[field.name] in ("int", "float"):
            assert field.name in checked, f"{field.name} may have any value"


@pytest.mark.parametrize(
    "clusters",
    [(), tuple(f"c{n}" for n in range(17)), ("a", "a"), ("UPPER",), ("with space",), ("",)],
)
def test_clusters_are_checked(clusters: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (ConfigError or InvalidName, both ValueErrors)
        MeshConfig(clusters=clusters)
