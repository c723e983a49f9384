"""What `mesh-broker --help` says."""

from __future__ import annotations

import pytest

from durable.commands.console import parser


def test_every_command_has_its_line() -> None:
    said = " ".join(parser().format_help().split())
    assert (
        "declare-exchange create an exchange, or check that it exists with these settings" in said
    )
    assert "delete-exchange delete an exchange if it exists" in said
    assert "declare-queue create a queue, or check that it exists with these settings" in said


@pytest.mark.parametrize(
    "words",
    [
        ["purge", ""], ["delete-queue", ""], ["delete-stream", ""], ["delete-exchange", ""],
        ["consume", ""], ["read", ""], ["cursors", ""], ["delete-vhost", ""],
        ["delete-cursor", "", "me"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_name_that_is_empty_is_wrong_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: a broker was asked for it, and the status was 1, or 0 where it was to be deleted."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    assert "want a name, got ''" in capsys.readouterr().err
