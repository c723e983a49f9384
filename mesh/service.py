"""A service: the handlers behind a cluster's name.

service = mesh.Service("databases", concurrency=64)

@service.request("get", idempotent=True, allow=["shop"])
async def get(request): return rows[request.payload]
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, overload

from .errors import InvalidName
from .names import DEFAULT_ENDPOINT, check_cluster, check_endpoint
from .protocol.dispatch import Endpoint

Handler = Callable[..., Awaitable[Any]]
H = TypeVar("H", bound=Handler)


class Request:
    """A request as its handler sees it. The handler returns bytes to reply, or raises ServiceError to refuse."""

    __slots__ = ("caller", "deadline", "endpoint", "node", "payload")

    def __init__(
        self, payload: bytes, endpoint: str, caller: str, node: bytes, deadline: float | None
    ) -> None:
        self.payload, self.endpoint = payload, endpoint
        self.caller, self.node = caller, node
        """The cluster whose key the caller has, and the id of its node."""
        self.deadline = deadline
        """On trio's clock; the handler is cancelled then. None: there is no deadline, as for a broadcast."""


@dataclass(slots=True, eq=False)
class Handlers:
    """All handlers of one kind: functions by endpoint name, and what the protocol has to know of each endpoint."""

    functions: dict[str, Handler] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)

    def register(
        self, name: str, handler: Handler, *, idempotent: bool, allow: Iterable[str] | None
    ) -> None:
        check_endpoint(name)
        if name in self.functions:
            # A handler's own name does not become its endpoint's, which some expect.
            hint = (
                '; name this one, as in @service.request("name")'
                if name == DEFAULT_ENDPOINT
                else ""
            )
            raise InvalidName(f"endpoint {name!r} already has a handler{hint}")
        _check_async(name, handler)
        # A single name is text: read as a sequence of letters, it would silently lock out every caller.
        names = [allow] if isinstance(allow, str) else allow
        allowed = None if names is None else frozenset(map(check_cluster, names))
        self.functions[name] = handler
        self.endpoints[name] = Endpoint(allowed, idempotent)


def _check_async(name: str, handler: Handler) -> None:
    """Raise TypeError when a handler that is not async is registered, instead of at its first call."""
    called: Any = handler
    while isinstance(called, partial):
        called = called.func
    # A plain `def` of a decorator may return the coroutine of an `async def`.
    called = inspect.unwrap(called)
    if not any(map(inspect.iscoroutinefunction, (called, type(called).__call__))):
        raise TypeError(f"handler of endpoint {name!r}: want `async def`, got {handler!r}")


class Service:
    """The handlers of one cluster. Give it to `mesh.join`; one object may be given to several nodes.

    Its decorators raise InvalidName, and TypeError for a handler that is not async.

    Args:
        cluster: the cluster that the node becomes a member of.
        concurrency: handlers that may run at a time; None takes the node's setting. Further requests
            wait in a queue; when it is full, callers get BUSY and ask other members.
    """

    def __init__(self, cluster: str, *, concurrency: int | None = None) -> None:
        self.cluster = check_cluster(cluster)
        if concurrency is not None and type(concurrency) is not int:
            raise TypeError(f"concurrency: want int, got {type(concurrency).__name__}")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency: must be at least 1, got {concurrency}")
        self.concurrency = concurrency
        self.requests, self.broadcasts, self.tunnels = Handlers(), Handlers(), Handlers()

    def __repr__(self) -> str:
        return f"<Service {self.cluster} {', '.join(self.requests.functions) or 'no requests'}>"

    @overload
    def request(self, name: H, /) -> H: ...
    @overload
    def request(
        self, name: str = ..., /, *, idempotent: bool = ..., allow: Iterable[str] | None = ...
    ) -> Callable[[H], H]: ...
    def request(
        self, name: Any = DEFAULT_ENDPOINT, /, *, idempotent: bool = False,
        allow: Iterable[str] | None = None,
    ) -> Any:  # fmt: skip
        """Answer requests to `cluster/name` with `async def handler(request) -> bytes`; without a name, to `cluster`.

        Args:
            idempotent: safe to run twice; a request is then sent again to another member if the one
                that had it is lost.
            allow: the cluster or clusters that may call it; None for all that are admitted.
        """
        return self._register(self.requests, name, idempotent=idempotent, allow=allow)

    @overload
    def broadcast(self, name: H, /) -> H: ...
    @overload
    def broadcast(
        self, name: str = ..., /, *, allow: Iterable[str] | None = ...
    ) -> Callable[[H], H]: ...
    def broadcast(
        self, name: Any = DEFAULT_ENDPOINT, /, *, allow: Iterable[str] | None = None
    ) -> Any:
        """Handle broadcasts to `cluster/name` with `async def handler(request) -> None`."""
        return self._register(self.broadcasts, name, idempotent=False, allow=allow)

    @overload
    def tunnel(self, name: H, /) -> H: ...
    @overload
    def tunnel(
        self, name: str = ..., /, *, allow: Iterable[str] | None = ...
    ) -> Callable[[H], H]: ...
    def tunnel(self, name: Any = DEFAULT_ENDPOINT, /, *, allow: Iterable[str] | None = None) -> Any:
        """Serve tunnels to `cluster/name` with `async def handler(tunnel) -> None`."""
        return self._register(self.tunnels, name, idempotent=False, allow=allow)

    @staticmethod
    def _register(
        handlers: Handlers, name: Any, *, idempotent: bool, allow: Iterable[str] | None
    ) -> Any:
        if callable(name):
            handlers.register(DEFAULT_ENDPOINT, name, idempotent=idempotent, allow=allow)
            return name

        def decorate(handler: H) -> H:
            handlers.register(name, handler, idempotent=idempotent, allow=allow)
            return handler

        return decorate

    def idempotent_targets(self) -> tuple[str, ...]:
        return tuple(
            f"{self.cluster}/{name}"
            for name, endpoint in self.requests.endpoints.items()
            if endpoint.idempotent
        )
