"""The root of the error tree, and how errors show values."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from mesh.errors import MeshError

SHOWN_MAX = 100
"""Characters of a wrong value that an error shows."""
COMPARED_MAX = 10_000
"""Characters that an error compares to find `nearest`: a client's misspelling must not cost the broker much."""


class DurableError(MeshError):
    """Root of all errors of the durable tier."""


Error = TypeVar("Error", bound=DurableError)


def copy_error(error: Error) -> Error:
    """Return a copy of `error`, for errors that are kept and raised more than once. Each raise adds its
    traceback frames, with all objects they hold, to an exception, and each handler may add notes."""
    kind = type(error)
    found = kind.__new__(kind, *error.args)
    vars(found).update(vars(error))
    vars(found).pop("__notes__", None)
    found.__cause__, found.__suppress_context__ = error.__cause__, error.__suppress_context__
    return found


def shown(value: Any) -> str:
    """Return a value as an error shows it: short enough for a line of a log."""
    try:
        text = repr(value)
    except RecursionError:  # A peer may send any nesting that msgpack accepts.
        return f"a {type(value).__name__} nested too deeply to be shown"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name in `known` that was probably meant; empty if none is similar."""
    alike = (one for one in known if abs(len(one) - len(name)) <= 3)
    compared = [*islice(alike, COMPARED_MAX // (len(name) + 1))]
    if not compared:  # get_close_matches takes 0.2 s to prepare a name of a megabyte.
        return ""
    return next(iter(get_close_matches(name, compared, n=1)), "")
