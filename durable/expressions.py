"""Regular expressions of permissions: here they are compiled, and nowhere else.

Python's compiler calls itself for each parenthesis within another. How deep it gets depends on how deep
its caller stands: what it takes from one it may not take from another. So how deep they may be nested
has a limit of ours, which holds wherever a broker stands.
"""

from __future__ import annotations

import re
import threading
import warnings
from typing import Any

NESTING_MAX = 100
"""Takes 200 of the 1,000 calls within each other that Python allows; a broker stands less than 100 deep."""
PROBLEM_MAX = 100
"""Characters: the compiler's own words may hold all of the expression."""
NOTHING = re.compile("(?!)", re.DOTALL)
"""Matches no text, not even an empty one. With a flag, as `compiled("(?!)")` is another one."""

_QUIET = threading.Lock()
"""Warnings are turned off for all threads: one after the other, else they may stay so."""
_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?|[()]", re.DOTALL)
_COMMENTS = re.compile(r"\(\?(?:#|[A-Za-z-]*x)")


def compiled(expression: Any) -> re.Pattern[str]:
    """Raises ValueError, which says in a few words why not."""
    if not isinstance(expression, str):
        raise ValueError("it is no text")
    if nesting(expression) > NESTING_MAX:
        raise ValueError(f"parentheses are nested more than {NESTING_MAX} deep")
    try:
        # It warns of what later Pythons may read otherwise, with a line of ours; who wrote it is elsewhere.
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(expression)
    except Exception as error:  # Not re.error alone, which is all that it documents.
        raise ValueError(str(error)[:PROBLEM_MAX] or type(error).__name__) from error


def compiled_or_nothing(expression: Any) -> re.Pattern[str]:
    """For what stands in a log already, whoever wrote it: NOTHING if it cannot be compiled."""
    try:
        return compiled(expression)
    except ValueError:
        return NOTHING


def problem_of(expression: Any) -> str:
    """Why it cannot be compiled; empty if it can."""
    try:
        compiled(expression)
    except ValueError as error:
        return str(error)
    return ""


def nesting(expression: str) -> int:
    """How deep parentheses are nested, or more. Where there may be comments, and so brackets and
    parentheses that are none, each that opens counts."""
    if _COMMENTS.search(expression):
        return expression.count("(")
    depth = deepest = 0
    for token in _TOKENS.findall(expression):
        if token == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif token == ")":
            depth -= 1
    return deepest
