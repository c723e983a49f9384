"""CPU of single operations that the docs mention, each repeated many times by itself; reported without a mark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plan import Case, Family, Outcome, Scale, row

if TYPE_CHECKING:
    from .processes import Troupe

ROUNDS_MAX = 3


def stepping(name: str, step: str, count: int) -> Case:
    """Repeat `step` of roles/step.py `count` times."""

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        role, times = troupe.start("step", {"step": step}), scale.count(count)
        return Outcome({"us": role.ask("run", count=times)["cpu_ns"] / 1000 / times})

    return Case(name, run)


def together(*cases: Case) -> list[Family]:
    rows = [row(f"CPU of {case.name}", "us", case.name, "us") for case in cases]
    return [Family(name="steps", cases=cases, rows=rows, rounds_max=ROUNDS_MAX)]


def family() -> list[Family]:
    return together(
        stepping("an announcement verified", "announcement", 5_000),
        stepping("a connection with CURVE, both ends", "handshake", 500),
    )
