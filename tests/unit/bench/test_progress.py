"""What is told of a run before it is over: to a file a line, to a terminal one that is kept."""

from __future__ import annotations

import io

from bench.comparison import latency, throughput
from bench.latency.workloads import WORKLOADS
from bench.machine import ROOT
from bench.plan import Case, Family, Outcome, Scale
from bench.processes import MeasurementFailed, Troupe
from bench.progress import CLEAR, Progress
from bench.session import Session
from bench.systems import SYSTEMS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A time that somebody sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_to_a_file_a_line_begins_and_a_line_ends_a_run() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, clock)
    clock.now_s += 83
    progress.begin("run 1 of 2, at most 9 s")
    progress.say("done")
    progress.end()
    assert stream.getvalue() == "after 1:23: run 1 of 2, at most 9 s\ndone\n"


def test_on_a_terminal_nothing_is_left_of_what_has_begun() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, clock)
    progress.begin("run 1")
    progress.say("done")
    progress.begin("run 2")
    progress.end()
    kept = [line.rpartition(CLEAR)[2] for line in stream.getvalue().split("\n")]
    assert kept == ["done", ""]
    assert "after 0:00: run 1, 0 s until now" in stream.getvalue()


def session(case: Case, begun: list[str], said: list[str], rounds_max: int) -> Session:
    family = Family(name="f", cases=[case], rows=[], rounds_max=rounds_max)
    return Session([family], rounds=3, scale=Scale(), say=said.append, begin=begun.append)


def test_every_run_is_told_of_when_it_begins() -> None:
    begun, said = list[str](), list[str]()

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        assert len(begun) == len(said) + 1
        return Outcome({"value": 1})

    session(Case("one", run), begun, said, rounds_max=2).run()
    assert begun == [
        "run 1 of 2, round 1/3  one, at most 180 s an answer",
        "run 2 of 2, round 2/3  one, 0 s the round before",
    ]


def test_a_run_that_failed_does_not_say_how_long_the_next_takes() -> None:
    begun = list[str]()

    def run(troupe: Troupe, scale: Scale) -> Outcome:
        raise MeasurementFailed("died")

    session(Case("one", run, lambda scale: 7.4), begun, [], rounds_max=1).run()
    session(Case("two", run), begun, [], rounds_max=2).run()
    assert [words.split(", ")[-1] for words in begun] == [
        "at most 7 s", "at most 180 s an answer", "at most 180 s an answer",
    ]  # fmt: skip


def test_comparisons_say_how_long_they_may_take() -> None:
    case = throughput.case(SYSTEMS["zeromq"], 1024, 1000, 20.0)
    assert case.seconds_max is not None
    assert case.seconds_max(Scale()) == 30 + 26 + 10
    lasting = latency.Lasting(30.0, 3.0, 1)
    load = latency.case(SYSTEMS["redis-raw"], WORKLOADS["L1"], lasting, ROOT)
    assert load.seconds_max is not None
    assert load.seconds_max(Scale()) == 90 + 33 + 5 + 10
