"""DNS names, with a fake resolver."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from discovery.dns import DnsFinder
from discovery.errors import BadEndpoint
from tests.waiting import PATIENCE_S, until, virtual_sleep

if TYPE_CHECKING:
    from trio.testing import MockClock

Answer = list[str] | Exception | None


class FakeResolver:
    """Gives its answers in turn, the last one for ever. None: no answer at all."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked_s: list[float] = []

    async def look_up(self, host: str) -> list[str]:
        self.asked_s.append(trio.current_time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await trio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        assert host == "nodes.example"
        return answer


class Run:
    """A finder at work against `answers`."""

    def __init__(self, *answers: Answer) -> None:
        self.resolver = FakeResolver(*answers)
        self.finder = DnsFinder("dns://nodes.example:9000", look_up=self.resolver.look_up)
        self.found: list[str] = []

    async def start(self, nursery: trio.Nursery) -> Run:
        await nursery.start(self.finder.run, lambda found: self.found.append(found.endpoint))
        return self

    def waits_s(self) -> list[int]:
        asked_s = self.resolver.asked_s
        return [round(after - before) for before, after in itertools.pairwise(asked_s)]


async def test_every_address_every_30_s(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    run = await Run(["10.0.0.1", "10.0.0.1", "2001:db8::1", "fe80::1"], ["10.0.0.2"]).start(nursery)
    await virtual_sleep(31)
    nursery.cancel_scope.cancel()
    assert run.found == ["tcp://10.0.0.1:9000", "tcp://[2001:db8::1]:9000", "tcp://10.0.0.2:9000"]
    assert run.waits_s() == [30]
    assert run.finder.problem() is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not"),
        (OSError("no network"), "no network"),
        (UnicodeError("label too long"), "label too long"),
        ([], "the name has no addresses"),
    ],
)
async def test_a_failure_is_a_problem_until_it_passes(
    nursery: trio.Nursery, autojump_clock: MockClock, answer: Answer, words: str
) -> None:
    run = await Run(answer, ["10.0.0.1"]).start(nursery)
    await virtual_sleep(1)
    problem = run.finder.problem()
    assert problem is not None
    assert problem.startswith("dns://nodes.example:9000: ")
    assert words in problem
    await virtual_sleep(5)
    nursery.cancel_scope.cancel()
    assert run.finder.problem() is None
    assert run.found == ["tcp://10.0.0.1:9000"]
    assert run.waits_s() == [5]


async def test_a_silent_resolver_is_given_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(None, ["10.0.0.1"]).start(nursery)
    await virtual_sleep(11)
    assert "no answer from the resolver within 10 s" in (run.finder.problem() or "")
    await virtual_sleep(5)
    nursery.cancel_scope.cancel()
    assert run.found == ["tcp://10.0.0.1:9000"]


async def test_a_resolver_is_called_silent_when_its_time_is_over(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Found by reading: that it had not answered for 10 s was said from the first moment."""
    run = await Run(None).start(nursery)
    await virtual_sleep(1)
    nursery.cancel_scope.cancel()
    assert run.finder.problem() == "dns://nodes.example:9000: no answer from the resolver yet"


async def test_while_a_name_is_looked_up_again_what_was_found_last_holds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    run = await Run(["10.0.0.1"], None).start(nursery)
    await virtual_sleep(31)
    nursery.cancel_scope.cancel()
    assert len(run.resolver.asked_s) == 2
    assert run.finder.problem() is None


async def test_a_resolver_that_hangs_uses_up_no_threads_of_others(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: each look-up that was given up kept one of trio's threads until the resolver answered. With all of them
    taken a node could not leave, and a broker would not have read its log."""
    asked, answers = threading.Semaphore(0), threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        asked.release()
        answers.wait(PATIENCE_S)
        return []

    monkeypatch.setattr("discovery.resolver.getaddrinfo", hang)
    try:
        finder = DnsFinder("dns://nodes.example:9000")
        await nursery.start(finder.run, lambda _: None)
        await until(lambda: asked.acquire(blocking=False))
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        answers.set()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["nodes.example:9000", "tcp://a:1", "dns://a", "dns://a:0"])
def test_a_malformed_name_is_named_at_construction(name: str) -> None:
    with pytest.raises(BadEndpoint, match=name):
        DnsFinder(name)
