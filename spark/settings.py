"""Settings of a node as options of a format, such as mesh.network_secret_file or mesh.seeds.

Values are text, as in environment variables. Secrets are not accepted: Spark shows options in its plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mesh.config import KEY_SOURCES
from mesh.errors import ConfigError
from mesh.settings import SECRETS, convert
from security.files import NETWORK_PREFIX

from .errors import InvalidOption, UnknownOption

SETTING_PREFIX = "mesh."
"""Prefix of the option of each setting."""
HIDDEN = "(hidden)"
"""In place of a secret."""


def read_setting(name: str, text: str, known: Iterable[str]) -> Any:
    """Return the value of option `SETTING_PREFIX + name`.

    Args:
        known: names of the settings that may be given.
    Raises:
        UnknownOption, InvalidOption: each in one line.
    """
    if name in SECRETS:
        raise InvalidOption(
            SETTING_PREFIX + name, HIDDEN, "a file instead, because Spark shows options in plans"
        )
    if name not in known:
        raise UnknownOption(SETTING_PREFIX + name, [SETTING_PREFIX + one for one in known])
    try:
        return convert(text, name, f"option {SETTING_PREFIX}{name}", as_text=True)
    except ConfigError as error:
        given = HIDDEN if NETWORK_PREFIX in text else text
        raise InvalidOption(
            SETTING_PREFIX + name, given, str(error).partition("want ")[2]
        ) from None


def joining_options(settings: Mapping[str, object]) -> dict[str, str]:
    """Return keyword arguments of `mesh.join` as options."""
    found = {}
    for name, value in settings.items():
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        found[SETTING_PREFIX + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def key_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of the options that say where the keys are."""
    names = [SETTING_PREFIX + one for one in KEY_SOURCES]
    return {name: value for name, value in options.items() if name in names}
