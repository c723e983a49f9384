"""Compiles the regular expressions of permissions; no other module does.

Python's compiler recurses for each nested parenthesis, so how deeply nested an expression it accepts
depends on how deep its caller is in the stack. A fixed limit on nesting makes the answer the same wherever
it is called from.
"""

from __future__ import annotations

import re
import threading
import warnings
from typing import Any

NESTING_MAX = 100
"""The compiler takes 200 of Python's 1,000 stack frames for this; a broker's own stack is less than 100 deep."""
PROBLEM_MAX = 100
"""Characters of the compiler's message that are kept: it may contain the whole expression."""
NOTHING = re.compile("(?!)", re.DOTALL)
"""Matches no text, not even an empty one. Its flag makes it another object than `compiled("(?!)")`, which
`re` would otherwise return from its cache."""

_WARNINGS_LOCK = threading.Lock()
"""Guards turning warnings off, which affects all threads: overlapping threads could leave them off."""
_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?|[()]", re.DOTALL)
_COMMENTS = re.compile(r"\(\?(?:#|[A-Za-z-]*x)")


def compiled(expression: Any) -> re.Pattern[str]:
    """Return the compiled expression. Raises ValueError, with a short reason, if it cannot be compiled."""
    if not isinstance(expression, str):
        raise ValueError("it is not text")
    if nesting(expression) > NESTING_MAX:
        raise ValueError(f"parentheses are nested more than {NESTING_MAX} deep")
    try:
        # The compiler warns of syntax that later versions of Python may read differently. The warning would
        # show a line of ours, which does not help the author of the expression.
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(expression)
    except Exception as error:  # Documented is only re.error, but others occur.
        raise ValueError(str(error)[:PROBLEM_MAX] or type(error).__name__) from error


def compiled_or_nothing(expression: Any) -> re.Pattern[str]:
    """Return the compiled expression, or NOTHING if it cannot be compiled; for expressions already in a log,
    which may be written by any release."""
    try:
        return compiled(expression)
    except ValueError:
        return NOTHING


def problem_of(expression: Any) -> str:
    """Return why the expression cannot be compiled; empty if it can."""
    try:
        compiled(expression)
    except ValueError as error:
        return str(error)
    return ""


def nesting(expression: str) -> int:
    """Return an upper bound of how deep parentheses are nested. In an expression that may have comments,
    brackets and parentheses may be text of a comment, so every opening parenthesis is counted as one
    level."""
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
