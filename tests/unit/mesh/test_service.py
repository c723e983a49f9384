"""What a service takes as a handler, and who may call it."""

from __future__ import annotations

from mesh.service import Request, Service


async def answer(request: Request) -> bytes:
    return request.payload


def test_one_name_is_a_list_of_one() -> None:
    databases = Service("databases")
    databases.request("one", allow="shop")(answer)
    databases.broadcast("one", allow="shop")(answer)
    databases.tunnel("one", allow="shop")(answer)
    databases.request("some", allow=["shop", "tills"])(answer)
    databases.request("all")(answer)
    for handlers in (databases.requests, databases.broadcasts, databases.tunnels):
        assert handlers.endpoints["one"].allow == frozenset({"shop"})
    assert databases.requests.endpoints["some"].allow == frozenset({"shop", "tills"})
    assert databases.requests.endpoints["all"].allow is None
