"""Reads settings: keywords of `join`, then `MESH_*` variables, then mesh.toml.

    mesh.toml       MESH_CONFIG names it, else ./mesh.toml if there is one; keys as in MeshConfig
    environment     MESH_LISTEN, MESH_SEEDS=tcp://a:1,tcp://b:2, MESH_WINDOW_BYTES=8MiB
    keywords        join("shop", listen=...)

Nothing is ignored: an unknown name is an error that suggests the setting that was probably meant.
Only an empty environment variable counts as not set, as in most programs.

The environment is text and is parsed as such. In mesh.toml and as a keyword a value has the type of its
setting (`zeroconf = false`, not "no"), with two exceptions: a list may be given as text,
"tcp://a:1,tcp://b:2", and a size in bytes may have a unit, "8MiB".
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from security.errors import UnsafeKeyFile
from security.files import NETWORK_PREFIX

from .config import KEY_SOURCES, MeshConfig
from .errors import ConfigError

PREFIX = "MESH_"
KEYWORD = "keyword"
FILE_VARIABLE, FILE_NAME = "MESH_CONFIG", "mesh.toml"
FILE_CHARACTERS_MAX = 256 << 10
"""A larger file is refused: it takes the parser, and with it the loop in which a node joins, most of a second. A
thousand seeds take 30 KiB."""
SECRETS = ("network_secret",)
NOT_SETTINGS = ("cluster", "clusters", "service", "services")
SECTION_HINT = "; sections are not used here: write one setting per line"
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
TYPES = {field.name: str(field.type) for field in fields(MeshConfig) if field.name != "clusters"}
DEFAULTS = {
    field.name: field.default for field in fields(MeshConfig) if field.default is not MISSING
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in force, for `mesh doctor`. `origin` names the source of the value."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Level:
    """The settings from one source; higher levels replace lower ones."""

    origin: str
    values: dict[str, Any]


def load_config(
    clusters: Sequence[str], keywords: Mapping[str, Any], *, has_keyring: bool = False,
    environ: Mapping[str, str] | None = None, directory: Path | None = None,
) -> MeshConfig:  # fmt: skip
    """Return the settings of a node that joins `clusters`.

    Args:
        has_keyring: a keyring is given, so that no key setting is required.
        environ, directory: used instead of the process's own.
    Raises:
        ConfigError: an unknown name, a value of the wrong kind, or settings that contradict each other.
    """
    levels = read_levels(keywords, environ=environ, directory=directory)
    values = _merge(levels)
    config = MeshConfig(clusters=tuple(clusters), **{name: value for name, (value, _) in values.items()})  # fmt: skip
    if not has_keyring and not config.key_settings:
        raise ConfigError(
            "no keys: set network_secret, network_secret_file or keys_dir "
            "(or MESH_NETWORK_SECRET, ...). `mesh keys new-network FILE` creates a secret"
        )
    return config


def key_source(
    keywords: Mapping[str, Any], *, environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Return the key setting in force, as keywords of `load_keyring`, and its origin. Raises ConfigError."""
    merged = _merge(read_levels(keywords, environ=environ, directory=directory))
    source = {name: merged[name][0] for name in KEY_SOURCES if name in merged}
    return source, next((merged[name][1] for name in source), "nowhere")


def list_settings(
    keywords: Mapping[str, Any], *, environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> list[Setting]:  # fmt: skip
    """Return every setting in force, and its origin; secrets are not shown. Raises ConfigError."""
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
    """Return the three levels, lowest first, checked and converted. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    directory = _current_directory() if directory is None else directory
    variables = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != FILE_VARIABLE
    }
    return [
        _read_file(environ.get(FILE_VARIABLE), directory),
        _level("environment variable", variables, PREFIX, as_text=True),
        _level(KEYWORD, {k: v for k, v in keywords.items() if v is not None}),
    ]


def _current_directory() -> Path:
    """Return the current directory; if it has been deleted, a relative path, under which nothing exists."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def _read_file(named: str | None, directory: Path) -> Level:
    path = Path(named) if named else directory / FILE_NAME
    try:
        if not named and not path.exists():
            return Level("", {})
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(FILE_CHARACTERS_MAX + 1)
        if len(text) > FILE_CHARACTERS_MAX:
            raise ConfigError(
                f"{path}: more than {FILE_CHARACTERS_MAX} characters, so not a file of settings"
            )
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        source = f" ({FILE_VARIABLE})" if named else ""
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}{source}: cannot be read: {why}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    level = _level(str(path), values)
    for name in SECRETS:
        if name in level.values and mode & 0o077:  # As a key file is refused.
            raise ConfigError(
                f"{name} belongs in a file for its owner alone: {UnsafeKeyFile(path, mode)}"
            )
    return level


def _level(
    origin: str, values: Mapping[str, Any], prefix: str = "", *, as_text: bool = False
) -> Level:
    converted: dict[str, Any] = {}
    for name, value in values.items():
        shown = f"{prefix}{name.upper()}" if prefix else name
        if name not in TYPES:
            hint = SECTION_HINT if isinstance(value, dict) else _hint(name, prefix)
            raise ConfigError(f"{origin} {shown}: unknown setting{hint}")
        if as_text and value == "":
            continue
        converted[name] = convert(value, name, f"{origin} {shown}", as_text=as_text)
    given = [name for name in KEY_SOURCES if converted.get(name)]
    if len(given) > 1:
        raise ConfigError(f"{origin}: {' and '.join(given)}: give one source of keys, not several")
    if converted.get("zeroconf") is False and converted.get("zeroconf_interfaces"):
        raise ConfigError(f"{origin}: zeroconf_interfaces is set, but zeroconf is off")
    return Level(origin, converted)


def _merge(levels: Sequence[Level]) -> dict[str, tuple[Any, str]]:
    merged: dict[str, tuple[Any, str]] = {}
    for level in levels:
        if any(level.values.get(name) for name in KEY_SOURCES):
            # A key setting replaces one of another kind from a lower level.
            for name in KEY_SOURCES:
                merged.pop(name, None)
        for name, value in level.values.items():
            merged[name] = (value, level.origin)
    return merged


def _hint(name: str, prefix: str) -> str:
    if name in NOT_SETTINGS:
        return (
            ": give it in the program, mesh.join(CLUSTER or SERVICE), or with the option --cluster"
        )
    near = [one for one in TYPES if f"_{name}_" in f"_{one}_"]  # `timeout` for request_timeout_s.
    near = difflib.get_close_matches(name, TYPES, n=1) or near
    return f"; did you mean {prefix}{near[0].upper() if prefix else near[0]}?" if near else ""


def convert(value: Any, name: str, what: str, *, as_text: bool) -> Any:
    """Convert a value from any source to the type of its setting.

    Args:
        what: the source and the setting, for the error.
        as_text: the value comes from the environment, where everything is text.
    Raises:
        ConfigError: the value does not fit the setting.
    """
    kind = TYPES[name]
    converter = CONVERTERS[kind.removesuffix(" | None")]
    try:
        return converter(value, as_text or "bytes" in name)
    except (ValueError, TypeError, OverflowError):
        wanted = WANTED[kind.removesuffix(" | None")]
        if kind == "int" and "bytes" in name:
            wanted = "a number of bytes, such as 65536 or 64KiB"
        raise ConfigError(f"{what}: want {wanted}, got {_shown(name, value)}") from None


def _shown(name: str, value: Any) -> str:
    """Return the value as an error shows it. Errors are logged and passed on, so no secret is in them."""
    is_secret = name in SECRETS or NETWORK_PREFIX in str(value)
    return f"a secret, as {type(value).__name__}" if is_secret else repr(value)


def _to_bool(value: Any, as_text: bool) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if as_text and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError
    return value


def _to_int(value: Any, as_text: bool) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not as_text:
        raise ValueError
    found = re.fullmatch(r"(\d[\d_]*)\s*([A-Za-z]*)", value.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError
    return int(found[1]) * UNITS[found[2].upper()]


def _to_float(value: Any, as_text: bool) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and not as_text):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _to_tuple(value: Any, as_text: bool) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    if isinstance(value, bytes) or not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _to_path(value: Any, as_text: bool) -> Path:
    if value == "":  # Path("") would be the current directory.
        raise ValueError
    if (
        str(value).strip().startswith(NETWORK_PREFIX)
    ):  # Every error about the file would show the secret.
        raise ValueError
    try:
        path = Path(value).expanduser()
    except RuntimeError:  # ~NAME of an unknown user.
        raise ValueError from None
    if b"\0" in os.fsencode(path):  # fsencode raises if the path cannot be encoded.
        raise ValueError
    return path


def _to_str(value: Any, as_text: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


CONVERTERS: dict[str, Callable[[Any, bool], Any]] = {
    "bool": _to_bool, "int": _to_int, "float": _to_float, "str": _to_str, "Path": _to_path,
    "tuple[str, ...]": _to_tuple,
}  # fmt: skip
WANTED = {
    "bool": "true or false", "int": "a whole number", "float": "a number of seconds", "str": "text",
    "Path": "a path", "tuple[str, ...]": "a list of texts, or one text separated by commas",
}  # fmt: skip
