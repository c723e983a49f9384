"""Where settings come from: keywords of `join`, then `MESH_*` variables, then mesh.toml.

    mesh.toml       MESH_CONFIG names it, else ./mesh.toml if there is one; keys as in MeshConfig
    environment     MESH_LISTEN, MESH_SEEDS=tcp://a:1,tcp://b:2, MESH_WINDOW_BYTES=8MiB
    keywords        join("shop", listen=...)

Nothing is ignored: a name that is no setting is an error that says which one was probably meant.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from .config import MeshConfig
from .errors import ConfigError

PREFIX = "MESH_"
FILE_VARIABLE, FILE_NAME = "MESH_CONFIG", "mesh.toml"
KEY_SOURCES = ("network_secret", "network_secret_file", "keys_dir")
SECRETS = ("network_secret",)
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
TYPES = {field.name: str(field.type) for field in fields(MeshConfig) if field.name != "clusters"}
DEFAULTS = {
    field.name: field.default for field in fields(MeshConfig) if field.default is not MISSING
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in force, for `mesh doctor`. `origin` says who set it."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Level:
    """One source of settings; a higher one wins."""

    origin: str
    values: dict[str, Any]


def load_config(
    clusters: Sequence[str], keywords: Mapping[str, Any], *, has_keyring: bool = False,
    environ: Mapping[str, str] | None = None, directory: Path | None = None,
) -> MeshConfig:  # fmt: skip
    """The settings of a node that joins `clusters`.

    Args:
        has_keyring: keys are given otherwise, so none of the key settings is needed.
        environ, directory: instead of the process's own.
    Raises:
        ConfigError: an unknown name, a value of the wrong kind, or settings that contradict.
    """
    levels = read_levels(keywords, environ=environ, directory=directory)
    values = _merge(levels)
    config = MeshConfig(clusters=tuple(clusters), **{name: value for name, (value, _) in values.items()})  # fmt: skip
    if not has_keyring and not any(getattr(config, name) for name in KEY_SOURCES):
        raise ConfigError(
            "no keys: set network_secret, network_secret_file or keys_dir "
            "(or MESH_NETWORK_SECRET, ...). `mesh keys new-network FILE` makes a secret"
        )
    return config


def explain(
    keywords: Mapping[str, Any], *, environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> list[Setting]:  # fmt: skip
    """Every setting in force and where it comes from; secrets are not shown. Raises ConfigError."""
    merged = _merge(read_levels(keywords, environ=environ, directory=directory))
    rows = []
    for name in TYPES:
        value, origin = merged.get(name, (DEFAULTS.get(name), "default"))
        hidden = name in SECRETS and value is not None
        rows.append(Setting(name, "(set)" if hidden else str(value), origin))
    return rows


def read_levels(
    keywords: Mapping[str, Any], *, environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> list[Level]:  # fmt: skip
    """The three sources, lowest first, checked and converted."""
    environ = os.environ if environ is None else environ
    directory = Path.cwd() if directory is None else directory
    variables = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != FILE_VARIABLE
    }
    return [
        _read_file(environ.get(FILE_VARIABLE), directory),
        _level("environment variable", variables, PREFIX),
        _level("keyword", {k: v for k, v in keywords.items() if v is not None}, ""),
    ]


def _read_file(named: str | None, directory: Path) -> Level:
    path = Path(named) if named else directory / FILE_NAME
    if not named and not path.exists():
        return Level("", {})
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    return _level(str(path), values, "")


def _level(origin: str, values: Mapping[str, Any], prefix: str) -> Level:
    converted: dict[str, Any] = {}
    for name, value in values.items():
        shown = f"{prefix}{name.upper()}" if prefix else name
        if name not in TYPES:
            near = difflib.get_close_matches(name, TYPES, n=1)
            hint = (
                f"; did you mean {prefix}{near[0].upper() if prefix else near[0]}?" if near else ""
            )
            raise ConfigError(f"{origin} {shown}: there is no such setting{hint}")
        converted[name] = convert(value, TYPES[name], f"{origin} {shown}")
    given = [name for name in KEY_SOURCES if converted.get(name)]
    if len(given) > 1:
        raise ConfigError(f"{origin}: {' and '.join(given)} contradict, give one source of keys")
    return Level(origin, converted)


def _merge(levels: Sequence[Level]) -> dict[str, tuple[Any, str]]:
    merged: dict[str, tuple[Any, str]] = {}
    for level in levels:
        if any(level.values.get(name) for name in KEY_SOURCES):
            for (
                name
            ) in KEY_SOURCES:  # A higher source of keys replaces a lower one of another kind.
                merged.pop(name, None)
        for name, value in level.values.items():
            merged[name] = (value, level.origin)
    return merged


def convert(value: Any, kind: str, what: str) -> Any:
    """A value from any source as the type its setting has. Raises ConfigError."""
    try:
        if kind == "bool":
            return _to_bool(value)
        if kind == "int":
            return _to_int(value)
        if kind == "float":
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        if kind.startswith("tuple"):
            parts = value.split(",") if isinstance(value, str) else list(value)
            if not all(isinstance(part, str) for part in parts):
                raise ValueError
            return tuple(part.strip() for part in parts if part.strip())
        if kind.startswith("Path"):
            return Path(value).expanduser()
        if not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError):
        wanted = {"int": "a whole number, as 65536 or 64KiB", "bool": "true or false"}.get(
            kind, kind
        )
        raise ConfigError(f"{what}: want {wanted}, got {value!r}") from None


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def _to_int(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d[\d_]*)\s*([A-Za-z]*)", value.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError
    return int(found[1]) * UNITS[found[2].upper()]
