"""Who met nobody is told what is known of it, and where to look on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mesh.commands.reaching import tell_why_nobody

DOCTOR = "`mesh doctor` may say why"


@pytest.mark.parametrize(
    ("members", "refused", "says"),
    [
        (0, {}, f"mesh: nobody is here; {DOCTOR}\n"),
        (0, {"a connection": 2}, f"mesh: nobody is here; {DOCTOR}\n"),
        (1, {"a connection": 2}, f"mesh: not everybody was let in; {DOCTOR}\n"),
        (1, {}, ""),
    ],
)
async def test_the_doctor_is_named_where_it_may_know_more(
    members: int, refused: dict[str, int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node: Any = SimpleNamespace(
        config=SimpleNamespace(seeds=()), problems=dict, members=lambda: [object()] * members,
        statistics=lambda: SimpleNamespace(refused=refused),
    )  # fmt: skip
    await tell_why_nobody(node)
    assert capsys.readouterr().err == says
