"""The rule for names of clusters, and an explanation of what is wrong with an invalid one."""

from __future__ import annotations

import re

LENGTH_MAX = 63
CLUSTER = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{LENGTH_MAX - 1}}}")
CLUSTER_ALPHABET, BOTH_CASES = "a-z 0-9 . _ -", "A-Z a-z 0-9 . _ -"


def name_problem(name: object, alphabet: str = CLUSTER_ALPHABET) -> str:
    """Say why `name`, known to be invalid, is not 1 to 63 characters of `alphabet` with a letter or digit first."""
    wanted = f"want 1 to {LENGTH_MAX} of {alphabet}"
    if not isinstance(name, str):
        return f"is {type(name).__name__}, not text; {wanted}"
    if not name:
        return f"is empty; {wanted}"
    if len(name) > LENGTH_MAX:
        return f"too long, {len(name)} characters of {LENGTH_MAX}; {wanted}"
    valid_prefix = re.match(f"[{alphabet.replace(' ', '')}]*", name)
    if valid_prefix is None or valid_prefix.end() == len(name):
        return f"must start with a letter or digit; {wanted}"
    which = f"{name[valid_prefix.end()]!r}, character {valid_prefix.end() + 1},"
    if alphabet == CLUSTER_ALPHABET and "A" <= name[valid_prefix.end()] <= "Z":
        return f"{which} is upper case; {wanted}"
    return f"{which} is not allowed; {wanted}"
