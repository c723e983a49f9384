"""Regular expressions of permissions: what compiles here compiles everywhere, or nowhere."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from durable import expressions
from durable.expressions import NESTING_MAX, NOTHING, compiled, compiled_or_nothing, problem_of


def nested(levels: int) -> str:
    return "(" * levels + "a" + ")" * levels


def at_depth(frames: int, call: Callable[[], object]) -> object:
    return call() if not frames else at_depth(frames - 1, call)


@pytest.mark.parametrize(
    ("expression", "depth"),
    [
        ("", 0), ("a", 0), ("(a)(b)(c)", 1), ("((a)|(b(c)))", 3), ("(?:a(?=b))", 2),
        (r"\(\((a)", 1), (r"\\((a))", 2), ("[(](a)", 1), ("[]((](a)", 1), ("[^](](a)", 1),
        (r"[\](](a)", 1), ("([)])(a)", 1), ("[[(]((a))", 2), ("\\\n((a))", 2), ("(a", 1), ("[((", 0),
        # Where there may be comments, a bracket or parenthesis may be in one: each counts that opens one.
        ("(?#[)((a))(?#])", 4), ("(?x)#[\n((a))#]\n", 3), ("(?i-x:(a))", 2), ("(?P<x>(a))", 2),
    ],
)  # fmt: skip
def test_how_deep_it_is_nested(expression: str, depth: int) -> None:
    assert expressions.nesting(expression) == depth


@pytest.mark.parametrize("opening", ["(", "(?:", "(?=", "(?P<{}>", "(?i:", "(?#)(", "(?x:#[\n("])
def test_what_is_nested_too_deep_is_never_compiled(opening: str) -> None:
    """Found: one that compiled where it was declared did not at the next start, which stood deeper."""
    groups = NESTING_MAX + 1
    deep = "".join(opening.replace("{}", f"g{at}") for at in range(groups)) + "a"
    for frames in (0, 300):
        with pytest.raises(ValueError, match=f"nested more than {NESTING_MAX} deep"):
            at_depth(frames, lambda: compiled(deep + ")" * groups * opening.count("(")))


def test_what_is_nested_as_deep_as_it_may_be_compiles_wherever_a_broker_stands() -> None:
    for frames in (0, 500):
        re.purge()
        assert at_depth(frames, lambda: compiled(nested(NESTING_MAX)))


def test_a_long_one_is_looked_at_once() -> None:
    """An open bracket that each later one was compared with took minutes."""
    assert expressions.nesting("[" * 65_536) == 0
    assert expressions.nesting("(?" * 32_768) == 32_768


ODD = ["[[a]", "[a&&b]", "[a~~b]", "[a||b]"]
if sys.version_info < (3, 12):  # Later ones do not compile it.
    ODD.append("(?P<a>b)(?(\u0661)c)")


@pytest.mark.parametrize("odd", ODD)
def test_what_python_will_read_otherwise_one_day_warns_nobody(odd: str) -> None:
    """Found: a FutureWarning with a line of ours stood on the terminal."""
    re.purge()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert compiled(odd)
        assert not told
        re.compile(f"{odd}x")
        assert told, "all others are told as before"


def test_threads_that_compile_leave_warnings_on() -> None:
    """Whoever puts back what another thread had turned off turns it off for good."""
    before = [*warnings.filters]

    def compile_some(first: int) -> None:
        for number in range(first, first + 300):
            compiled(f"[[{number}]")

    threads = [threading.Thread(target=compile_some, args=(1000 * at,)) for at in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert warnings.filters == before


@pytest.mark.parametrize("error", [re.error("x"), ValueError("x"), IndexError("x"), MemoryError()])
def test_whatever_the_compiler_raises_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Found: a ValueError, which it does not document, ended the node that had asked."""

    def fail(_expression: str) -> None:
        raise error

    monkeypatch.setattr(re, "compile", fail)
    assert problem_of("a") == (str(error) or "MemoryError")
    monkeypatch.undo()
    assert problem_of("(?u)(?a)")


@pytest.mark.parametrize("wrong", ["(", "*", 5, None, b"a", ["a"], nested(NESTING_MAX + 1)])
def test_what_cannot_be_compiled_matches_nothing_and_says_why(wrong: Any) -> None:
    assert compiled_or_nothing(wrong) is NOTHING
    assert problem_of(wrong)
    assert len(problem_of(wrong)) < 200
    assert not any(NOTHING.fullmatch(name) for name in ("", "a", "mesh.permissions.web"))
    assert problem_of("jobs|.*") == ""
