"""Found is one claim; the finders are Finders."""

from __future__ import annotations

import pytest

from discovery.dns import DnsFinder
from discovery.file import FileFinder
from discovery.finder import Finder, Found
from discovery.mdns import MdnsFinder
from discovery.seeds import SeedFinder


def test_every_finder_satisfies_the_protocol() -> None:
    finders: list[Finder] = [
        SeedFinder(["tcp://a:1"]),
        DnsFinder("dns://a:1"),
        FileFinder("/nowhere"),
        MdnsFinder("ab12"),
    ]
    assert [finder.source for finder in finders] == ["seeds", "dns", "file", "zeroconf"]
    assert [finder.problem() for finder in finders] == [None] * 4
    assert [finder.place for finder in finders] == ["", "dns://a:1", "/nowhere", ""]
    assert [finder.endpoints for finder in finders] == [("tcp://a:1",), (), (), ()]
    assert [finder.each_answers for finder in finders] == [True, False, False, False]


@pytest.mark.parametrize("both", [("tcp://a:1", b"x"), ("", b"")])
def test_a_claim_is_an_endpoint_or_an_announcement(both: tuple[str, bytes]) -> None:
    with pytest.raises(AssertionError):
        Found(*both)


async def test_announcing_where_only_looking_is_possible_does_nothing() -> None:
    finder = SeedFinder(["tcp://a:1"])
    await finder.announce(b"me", 9000)
    await finder.withdraw()
