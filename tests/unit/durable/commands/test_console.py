"""What `mesh-broker --help` says."""

from __future__ import annotations

from durable.commands.console import parser


def test_every_command_has_its_line() -> None:
    said = " ".join(parser().format_help().split())
    assert "declare-exchange make an exchange, or make sure that it is so" in said
    assert "delete-exchange delete an exchange, if it is there" in said
    assert "declare-queue make a queue, or make sure that it is so" in said
