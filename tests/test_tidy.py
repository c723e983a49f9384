"""Properties of the code itself: the tree of docs/architecture.md is true, and is kept.

Every file stands in the tree, about as long as the tree says; a file imports only what stands below
it in its package or what the package `sees`; files marked P do no I/O; nothing is too long; no bin
for odds and ends. And of the tests: none waits for a time, but where it is said why.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TREE = (ROOT / "docs/architecture.md").read_text().split("```")[1]
IMPURE = {
    "trio", "zmq", "zeroconf", "asyncio", "threading", "socket", "os", "time", "secrets",
}  # fmt: skip
LINES_MAX, FUNCTION_LINES_MAX = 500, 70
MAY_SLEEP = {
    "waiting.py::until": "the one loop that looks again",
    "waiting.py::until_in_thread": "the same without trio",
    "waiting.py::virtual_sleep": "the virtual clock",
    "member.py::block": "its event loop is to be blocked",
    "integration/test_security.py::slowly": "its event loop is to be blocked",
    "integration/test_discovery_mdns.py::tell_problems": "another process, until its stdin ends",
    "e2e/test_broker_killed.py::_moment": "the random moment of a kill",
    "e2e/test_garbled.py::_pump": "what was garbled is to be read before the reset is",
    "e2e/test_garbled.py::test_a_bit_changed_on_the_way_and_a_reset_end_no_process": (
        "a heartbeat of libzmq's, of which nothing tells"
    ),
    "spark/test_replay.py::test_a_paced_replay_is_never_early_and_cuts_pauses": (
        "the times between messages are what is replayed"
    ),
}
"""All others wait by tests/waiting.py. Deadlines and cancellations that are what is tested are no waits."""
BINS = {"utils", "util", "helpers", "common", "misc", "manager", "managers"}


def read_tree() -> tuple[list[str], set[str], dict[str, list[str]], dict[str, int]]:
    """Modules in reading order, the pure ones, what each package sees, lines of each file."""
    order: list[str] = []
    pure: set[str] = set()
    sees: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    path: list[str] = []
    for indent, name, ending, note in re.findall(r"^( *)(\w+)(/|\.py)(.*)$", TREE, re.MULTILINE):
        path[len(indent) // 2 :] = [name]
        module = ".".join(path)
        order.append(module)
        if re.search(r"\bP\b", note) or any(module.startswith(f"{one}.") for one in pure):
            pure.add(module)
        if ending == "/" and "sees:" in note:
            sees[module] = re.findall(r"[\w.]+", note.split("sees:")[1])
        if ending == ".py":
            lines[module] = int(note.split()[0])
    return order, pure, sees, lines


ORDER, PURE, SEES, LINES = read_tree()
TOPS = {module for module in SEES if "." not in module}
FILES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))


def imports(tree: ast.AST, package: str) -> list[str]:
    names: list[str] = []
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom):
            level = "." * one.level
            source = resolve_name(level + (one.module or ""), package) if level else one.module
            names += [f"{source}.{alias.name}" for alias in one.names]
        elif isinstance(one, ast.Import):
            names += [alias.name for alias in one.names]
    return names


def within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def check_import(module: str, home: str, name: str) -> None:
    assert not (module in PURE and name.split(".")[0] in IMPURE), f"{module} is pure: {name}"
    if name.split(".")[0] not in TOPS or any(within(name, one) for one in SEES[home]):
        return
    assert within(name, home), f"{module} may not see {name}"
    target = max((one for one in ORDER if within(name, one)), key=len)
    assert ORDER.index(target) > ORDER.index(module), f"{module} imports upwards: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tidy(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    text = path.read_text()
    tree = ast.parse(text)
    assert module in ORDER, f"{module} is not in docs/architecture.md"
    assert path.stem not in BINS
    assert text.count("\n") <= LINES_MAX
    assert "FIXME" not in text
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (one.end_lineno or 0) - one.lineno
            assert length < FUNCTION_LINES_MAX, f"{module}:{one.lineno} is {length} lines long"
    if path.stem == "__init__":
        return
    home = max((package for package in SEES if within(module, package)), key=len)
    for name in imports(tree, module.rpartition(".")[0]):
        check_import(module, home, name)


def test_every_file_in_the_tree_exists() -> None:
    for module in ORDER:
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


@pytest.mark.parametrize(("module", "told"), LINES.items(), ids=LINES)
def test_the_tree_tells_about_how_long_each_file_is(module: str, told: int) -> None:
    lines = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text().count("\n")
    assert abs(lines - told) <= max(15, 0.12 * told), f"{lines} lines, docs/architecture.md: {told}"


def test_tests_bench_and_examples_are_short_too() -> None:
    for top in ("tests", "bench", "examples"):
        for path in (ROOT / top).rglob("*.py"):
            assert path.read_text().count("\n") <= LINES_MAX, path


def sleepers(node: ast.AST, name: str) -> Iterator[str]:
    """Names of functions that sleep, or wait until all has been quiet for a while."""
    for one in ast.iter_child_nodes(node):
        inner = name
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = one.name
        elif isinstance(one, ast.ImportFrom):
            assert not {alias.name for alias in one.names} & {"sleep", "sleep_until"}
        elif isinstance(one, ast.Call):
            called = ast.unparse(one.func).split(".")[-1]
            given = [*one.args, *(keyword.value for keyword in one.keywords)]
            waits = called in {"sleep", "sleep_until", "wait_all_tasks_blocked"}
            if waits and given and ast.unparse(given[0]) != "0":
                yield name
        yield from sleepers(one, inner)


def test_tests_wait_for_conditions_and_not_for_times() -> None:
    """A fixed wait is too short for a machine that is busy, and too long for every other."""
    tests = ROOT / "tests"
    found = {
        f"{path.relative_to(tests)}::{name}"
        for path in tests.rglob("*.py")
        for name in sleepers(ast.parse(path.read_text()), "")
    }
    assert found == MAY_SLEEP.keys(), "until() in tests/waiting.py waits for a condition"


def test_every_promise_of_the_readme_names_a_test_that_exists() -> None:
    """`path::name` or `::name` (in the file named last) in the last column of the table."""
    path = ""
    named = re.findall(r"\| `(tests/[\w/]+\.py)?(?:::(\w+))?` \|", (ROOT / "README.md").read_text())
    assert len(named) > 10
    for file, function in named:
        path = file or path
        text = (ROOT / path).read_text()
        assert not function or f"def {function}(" in text, f"{path}::{function}"


@pytest.mark.parametrize(
    "module",
    [
        "mesh.protocol.batch", "security.keyring", "discovery.mdns", "durable.log.reader",
        "spark.capture.reading", "spark.capture.catalog",
    ],
)  # fmt: skip
def test_what_an_executor_imports_is_light(module: str) -> None:
    """The batch codec, the keyring and what reads logs load neither trio nor zmq; discovery loads no zeroconf."""
    if module.startswith("spark"):
        pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    heavy = "zeroconf" if module == "discovery.mdns" else "trio"
    code = f"import sys, {module}; sys.exit({heavy!r} in sys.modules or 'zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
