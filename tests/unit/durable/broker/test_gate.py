"""Who may change what is declared: many together, or one alone; first come, first served."""

from __future__ import annotations

import trio
import trio.testing

from durable.broker.gate import Gate


class Story:
    """Who has come in, in order; each stays until it is told to go."""

    def __init__(self) -> None:
        self.gate, self.told = Gate(), list[str]()
        self.go: dict[str, trio.Event] = {}
        self.scopes: dict[str, trio.CancelScope] = {}

    async def be(self, name: str) -> None:
        """Names of those who want to be alone are capitals."""
        self.go[name] = trio.Event()
        with trio.CancelScope() as self.scopes[name]:
            async with self.gate.exclusive() if name.isupper() else self.gate.shared():
                self.told.append(name)
                await self.go[name].wait()
                self.told.append(f"-{name}")

    async def come(self, nursery: trio.Nursery, names: str) -> None:
        for name in names:
            nursery.start_soon(self.be, name)
            await trio.testing.wait_all_tasks_blocked()

    async def leave(self, names: str) -> None:
        for name in names:
            self.go[name].set()
            await trio.testing.wait_all_tasks_blocked()


async def test_one_is_alone_and_who_comes_later_waits() -> None:
    story = Story()
    async with trio.open_nursery() as nursery:
        await story.come(nursery, "abCd")
        assert story.told == ["a", "b"]
        await story.leave("ab")
        assert story.told == ["a", "b", "-a", "-b", "C"]
        await story.come(nursery, "eF")
        await story.leave("C")
        assert story.told[5] == "-C"
        assert sorted(story.told[6:]) == ["d", "e"], "both before F, who came after them"
        await story.come(nursery, "g")
        await story.leave("deFg")
        assert story.told[8:] == ["-d", "-e", "F", "-F", "g", "-g"]


async def test_who_gives_up_is_in_nobodys_way() -> None:
    story = Story()
    async with trio.open_nursery() as nursery:
        await story.come(nursery, "aBcD")
        for name in "cB":
            story.scopes[name].cancel()
            await trio.testing.wait_all_tasks_blocked()
        await story.leave("a")
        assert story.told == ["a", "-a", "D"]
        story.scopes["D"].cancel()
        await story.come(nursery, "e")
        assert story.told[3:] == ["e"]
        await story.leave("e")


class Crowd:
    """How many were in at the same time, each for one turn."""

    def __init__(self) -> None:
        self.gate, self.most, self._inside = Gate(), 0, 0

    async def be(self) -> None:
        async with self.gate.shared():
            self._inside += 1
            self.most = max(self.most, self._inside)
            await trio.lowlevel.checkpoint()
            self._inside -= 1


async def test_all_that_come_together_are_in_in_one_turn() -> None:
    """Else each of a thousand declarations would have a commit of its own."""
    crowd = Crowd()
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(crowd.be)
    assert crowd.most == 100


async def test_all_that_have_waited_are_let_in_in_one_turn() -> None:
    """Found: one after the other, and each of 250 queues that expired meanwhile had a commit of its own."""
    crowd = Crowd()
    async with trio.open_nursery() as nursery, crowd.gate.exclusive():
        for _ in range(100):
            nursery.start_soon(crowd.be)
        await trio.testing.wait_all_tasks_blocked()
    assert crowd.most == 100


async def test_who_gives_up_as_it_is_let_in_is_in_nobodys_way() -> None:
    story = Story()
    async with trio.open_nursery() as nursery:
        await story.come(nursery, "Ab")
        story.scopes["b"].cancel()
        story.go["A"].set()
        with trio.fail_after(5):
            await story.come(nursery, "C")
        assert story.told == ["A", "-A", "C"]
        await story.leave("C")
