"""The parser: any order of arguments, numbers that are none, usage of the command that was meant."""

from __future__ import annotations

import argparse

import pytest

from mesh.cli import main
from mesh.commands.console import parser


@pytest.mark.parametrize(
    "line",
    [
        "request databases --gather hi", "request --gather databases hi",
        "request databases hi --gather", "--verbose request --gather databases --timeout 0.5 hi",
    ],
)  # fmt: skip
def test_options_and_positionals_in_any_order(line: str) -> None:
    args = parser().parse_args(line.split())
    assert (args.target, args.payload, args.gather) == ("databases", "hi", True)


def test_what_looks_like_an_option_can_be_a_payload() -> None:
    for line in ("publish --wait 0 a.d -- --lines", "publish a.d --wait 0 -- --lines"):
        args = parser().parse_args(line.split())
        assert (args.topic, args.payload, args.lines, args.wait) == ("a.d", "--lines", False, 0.0)
    assert parser().parse_args(["request", "db", "--json", "-5"]).payload == "-5"
    assert parser().parse_args(["request", "db", "--json", "-"]).payload == "-"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("frobnicate", "invalid choice"),
        ("request", "arguments are required: target"),
        ("request a b c", "unrecognized arguments: c"),
        ("request a --json --frob", "unrecognized arguments: --frob"),
        ("send-file files ~nosuchuser/x", "file: want a path, got '~nosuchuser/x'"),
        ("request a --timeout 0 hi", "--timeout: want seconds, more than 0, got '0'"),
        ("request a --timeout nan", "--timeout: want seconds"),
        ("request a --timeout=-1", "--timeout: want seconds"),
        ("request a --timeout inf", "--timeout: want seconds"),
        ("publish a x --wait nan", "--wait: want seconds, 0 or more, got 'nan'"),
        ("publish a x --wait soon", "--wait: want seconds"),
        ("publish a x --lines", "omit the payload"),
        ("members --settle=-1", "--settle: want seconds"),
        (
            "subscribe a --count 0",
            "--count: want a whole number, 1 or more, of up to 18 digits, got '0'",
        ),
        ("subscribe a --count 1.5", "--count: want a whole number"),
        ("receive-file . --count=-1", "--count: want a whole number"),
        ("serve", "serve requires --echo"),
        ("serve --echo --delay nan", "--delay: want seconds"),
    ],
)
def test_wrong_usage_is_status_2_and_a_line_that_names_the_command(
    capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert says in said
    command = "mesh" if line == "frobnicate" else f"mesh {line.split()[0]}"
    assert said.startswith(f"{command}: ")
    assert said.endswith(f"; see {command} --help")


def every_parser(one: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [one]
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found += every_parser(inner)
    return found


def test_every_argument_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = every_parser(parser())
    assert len(found) == 22
    for one in found:
        for action in one._actions:
            commands = isinstance(action, argparse._SubParsersAction)
            assert action.help or commands, f"{one.prog} {action.dest}"
        with pytest.raises(SystemExit) as caught:
            one.parse_args(["--help"])
        assert caught.value.code == 0
    assert "exit status: 0 success" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("mesh 0.")
