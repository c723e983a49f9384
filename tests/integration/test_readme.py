"""The README works from top to bottom: its commands and samples run as they are written."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mesh
from tests.shell import Shell

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SHELL, PYTHON = (re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL) for kind in ("sh", "python"))  # fmt: skip
LINES_MAX = 210
VERBS = {"node": mesh.Node, "tunnel": mesh.Tunnel, "orders": mesh.Subscription}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The network's first node is a seed here: multicast is not there on every machine."""
    shell = Shell(tmp_path)
    (tmp_path / "network.secret").unlink()
    del shell.environment["MESH_NETWORK_SECRET_FILE"]
    for name in ("MESH_SETTLE_S", "MESH_REQUEST_TIMEOUT_S"):
        shell.environment[name] = "15"  # A reader waits until a command has started.
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    return shell


def bash(shell: Shell, script: str) -> subprocess.CompletedProcess[bytes]:
    script = f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    words = ["bash", "--noprofile", "--norc", "-e", "-m", "-c", script]
    return subprocess.run(
        words, env=shell.environment, cwd=shell.directory, capture_output=True, timeout=40,
        check=False,
    )  # fmt: skip


def test_keys_the_first_sample_and_the_shell(shell: Shell) -> None:
    """In the order of the page; only `make` is left out, which installed what runs here."""
    make, keys, echo, *_ = SHELL
    assert all(line.startswith("make ") for line in make.splitlines())
    (shell.directory / "sample.py").write_text(PYTHON[0])
    assert bash(shell, keys).returncode == 0
    shell.environment["MESH_NETWORK_SECRET_FILE"] = str(shell.directory / "network.secret")
    with shell.running("serve", "--echo", "--cluster", "seed", "--listen", shell.seed):
        done = bash(shell, f". .venv/bin/activate\npython sample.py\n{echo}wait")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"b'hello world'\nhello", done.stderr.decode()


def test_the_durable_section(shell: Shell) -> None:
    """A broker, the client, and what the shell says of it; the seed is there for lack of multicast."""
    _, keys, _, broker, _ = SHELL
    (shell.directory / "client.py").write_text(PYTHON[2])
    assert bash(shell, keys).returncode == 0
    shell.environment["MESH_NETWORK_SECRET_FILE"] = str(shell.directory / "network.secret")
    with shell.running("serve", "--echo", "--cluster", "seed", "--listen", shell.seed):
        done = bash(shell, f". .venv/bin/activate\n{broker}")
    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert "queue orders: 0 ready, 0 unacked" in out, done.stderr.decode()
    assert out.endswith("vhost /: no problems\n")


def test_the_second_sample_calls_what_there_is() -> None:
    """It is a fragment: compiled as such, and each call must fit the method's parameters."""
    code = PYTHON[1]
    compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    calls = [one for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Call)]
    checked = set()
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        assert isinstance(call.func.value, ast.Name)
        owner, verb = call.func.value.id, call.func.attr
        if owner == "mesh":
            continue
        signature = inspect.signature(getattr(VERBS[owner], verb))
        keywords = {one.arg: None for one in call.keywords if one.arg is not None}
        signature.bind(None, *call.args, **keywords)
        checked.add(verb)
    assert len(checked) >= 10


def test_it_is_short() -> None:
    assert README.count("\n") <= LINES_MAX


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
