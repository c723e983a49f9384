"""What a service takes as a handler, and who may call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

from mesh.errors import InvalidName
from mesh.service import Request, Service


async def answer(request: Request) -> bytes:
    return request.payload


def at_once(request: Request) -> bytes:
    return request.payload


async def one_after_the_other(request: Request) -> AsyncIterator[bytes]:
    yield request.payload


async def answer_of(table: dict[bytes, bytes], request: Request) -> bytes:
    return table[request.payload]


class Table:
    async def __call__(self, request: Request) -> bytes:
        return request.payload

    async def get(self, request: Request) -> bytes:
        return request.payload


class AtOnce:
    def __call__(self, request: Request) -> bytes:
        return request.payload


@wraps(answer)
def decorated(request: Request) -> Awaitable[bytes]:
    return answer(request)


@pytest.mark.parametrize("kind", ["request", "broadcast", "tunnel"])
@pytest.mark.parametrize(
    "handler", [at_once, partial(at_once), AtOnce(), AtOnce, one_after_the_other, len]
)
def test_a_handler_that_is_not_async_is_refused_where_it_stands(kind: str, handler: Any) -> None:
    decorate = getattr(Service("databases"), kind)
    with pytest.raises(TypeError, match="'default': want `async def`"):
        decorate(handler)
    with pytest.raises(TypeError, match="'get': want `async def`"):
        decorate("get")(handler)


@pytest.mark.parametrize(
    "handler",
    [
        answer, partial(answer_of, {}), partial(partial(answer_of), {}), Table(), partial(Table()),
        Table().get, decorated,
    ],
)  # fmt: skip
def test_whatever_is_async_will_do(handler: Callable[[Request], Awaitable[bytes]]) -> None:
    service = Service("databases")
    assert service.request(handler) is handler
    assert service.requests.functions == {"default": handler}


@pytest.mark.parametrize(("wrong", "error"), [("3", TypeError), (2.5, TypeError), (0, ValueError)])
def test_concurrency_is_a_count(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^concurrency: "):
        Service("databases", concurrency=wrong)


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


def test_a_second_handler_of_an_endpoint_is_refused_and_told_how_to_get_one_of_its_own() -> None:
    """Found: a new user took the names of the functions for those of the endpoints."""
    service = Service("databases")
    service.request(answer)
    with pytest.raises(
        InvalidName, match=r"'default' already has .*@service\.request\(\"name\"\)$"
    ):
        service.request(answer)
    service.request("get")(answer)
    with pytest.raises(InvalidName, match=r"'get' already has a handler$"):
        service.request("get")(answer)
    assert list(service.requests.functions) == ["default", "get"]
