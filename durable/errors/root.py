"""The root of the tree, and how errors show what they are given."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from mesh.errors import MeshError

SHOWN_MAX = 100
"""Characters of a wrong value that an error shows."""
COMPARED_MAX = 10_000
"""Characters an error compares for its hint: a client that misspells must not cost the broker much."""


class DurableError(MeshError):
    """Root of all errors of the durable tier."""


Error = TypeVar("Error", bound=DurableError)


def afresh(error: Error) -> Error:
    """One that says the same, for what is kept to be raised more than once: an error gathers the frames
    of each time it is raised, with all that they hold, and the notes of everybody who met it."""
    kind = type(error)
    found = kind.__new__(kind, *error.args)
    vars(found).update(vars(error))
    vars(found).pop("__notes__", None)
    found.__cause__, found.__suppress_context__ = error.__cause__, error.__suppress_context__
    return found


def shown(value: Any) -> str:
    """A value as an error shows it: short enough for a line of a log."""
    try:
        text = repr(value)
    except RecursionError:  # A peer may send whatever msgpack takes.
        return f"a {type(value).__name__} nested too deep to be shown"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of `known` that was probably meant; empty when none is near."""
    alike = (one for one in known if abs(len(one) - len(name)) <= 3)
    compared = [*islice(alike, COMPARED_MAX // (len(name) + 1))]
    if not compared:  # To prepare a name of a megabyte for being compared takes 0.2 s.
        return ""
    return next(iter(get_close_matches(name, compared, n=1)), "")
