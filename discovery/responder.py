"""The Protocol `Responder`, an mDNS responder and browser, and its implementation on zeroconf, used only here.

zeroconf runs an asyncio loop in one thread and calls back in another. Here its blocking calls run in trio's
worker threads, its callbacks go to `on_change` (in its thread), and its errors become `ResponderError`.
zeroconf and asyncio are imported on first use, or by `load_zeroconf`: a node without them saves 63 ms.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio
from trio.lowlevel import RunVar

from .errors import ResponderError
from .interfaces import address_indexes, multicast_addresses
from .threads import run_in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

    from zeroconf import ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

logger = logging.getLogger(__name__)

T = TypeVar("T")
SERVICE = "_mesh._tcp.local."
QUERY_MS_MAX = 3000
"""How long zeroconf repeats the question for one instance."""

OnChange = Callable[[str, bool], None]
"""(instance, present), called in any thread."""
_PTR, _TXT, _IN = 12, 16, 1  # RFC 1035 3.2.2 and 3.2.4
OPENING_S_MAX = 3.0
"""Usually it takes milliseconds. A node that ends meanwhile waits for so long at most."""
OWN_DESCRIPTORS = 8
"""Descriptors that zeroconf opens beside one socket per interface: one to listen, three for its loop; some to spare."""
ADDRESSES_MAX = 8
"""A records published beside the announcement, for other mDNS tools; the mesh does not read them."""


class Responder(Protocol):
    """One running mDNS responder and browser. Async methods raise ResponderError."""

    async def publish(self, txt: bytes, port: int) -> None: ...

    async def withdraw(self) -> None: ...

    def instances(self) -> list[str]: ...

    def txt(self, instance: str) -> bytes | None: ...

    def query(self, instance: str) -> None: ...

    async def follow_interfaces(self) -> None: ...

    async def close(self) -> None: ...


OpenResponder = Callable[[str, Sequence[str] | None, OnChange], Awaitable[Responder]]


def load_zeroconf() -> None:
    """Import zeroconf now. An import in a thread, while a node looks for others, would slow down both."""
    import zeroconf  # noqa: F401


async def open_zeroconf(
    instance: str, interfaces: Sequence[str] | None, on_change: OnChange
) -> Responder:
    """Open sockets on `interfaces` (their IPv4 addresses; None: all) and start to browse."""
    lock = threading.Lock()
    opened: ZeroconfResponder | None = None
    given_up = False

    def open_it() -> None:
        nonlocal opened
        responder = ZeroconfResponder(instance, interfaces, on_change)
        with lock:
            if not given_up:
                opened = responder
                return
        responder.close_now()

    # Not cancelled, so that what opens is closed. But if zeroconf's thread ends before its loop runs, as for lack of
    # a descriptor, zeroconf waits for it for ever.
    with trio.move_on_after(OPENING_S_MAX, shield=True):
        await _run(open_it, _opening_limiter())
    with lock:
        given_up = opened is None
    if opened is None:
        raise ResponderError(f"zeroconf did not start within {OPENING_S_MAX:.0f} s")
    return opened


_OPENING_LIMITER: RunVar[trio.CapacityLimiter] = RunVar("opening_limiter")


def _opening_limiter() -> trio.CapacityLimiter:
    """Return the limiter of openings in this trio run, of one thread: an opening that hangs keeps its thread for ever, and
    later ones must not keep more, least of all of trio's common threads."""
    try:
        return _OPENING_LIMITER.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _OPENING_LIMITER.set(limiter)
        return limiter


class ZeroconfResponder:
    """A `Responder` on zeroconf. The constructor, `close_now` and the `_methods` block: they run in threads, one at a time."""

    def __init__(
        self, instance: str, interfaces: Sequence[str] | None, on_change: OnChange
    ) -> None:
        from zeroconf import DNSQuestionType, IPVersion, ServiceBrowser, Zeroconf

        self._instance, self._on_change = instance, on_change
        self._given = interfaces
        self._candidates = self._present()
        usable, reasons = multicast_addresses(self._candidates)
        if not usable:
            raise ResponderError("; ".join(reasons) or "no interface has an IPv4 address")
        _check_descriptors(len(usable) + OWN_DESCRIPTORS)
        self._usable, self._lock = {*usable}, threading.Lock()
        self._published: ServiceInfo | None = None
        self._questions: set[Future[Any]] = set()  # those without an answer so far
        self._zeroconf: Zeroconf = Zeroconf(interfaces=usable, ip_version=IPVersion.V4Only)
        # QM, "answer to all": zeroconf's default first question asks for answers to our port 5353,
        # and another process on this host may get those. Measured for a late comer on the same
        # host: found after 1.1 s, with QM 0.17 s.
        try:
            self._browser: ServiceBrowser = ServiceBrowser(
                self._zeroconf, SERVICE, handlers=[self._changed], question_type=DNSQuestionType.QM
            )
        except BaseException:
            self._zeroconf.close()
            raise

    async def publish(self, txt: bytes, port: int) -> None:
        """Publish the record. Returns after the third and last broadcast (0.45 s)."""
        await self._in_thread(partial(self._publish, txt, port))

    async def withdraw(self) -> None:
        """Withdraw the record. Returns after the third and last goodbye (0.25 s)."""
        await self._in_thread(self._withdraw)

    def instances(self) -> list[str]:
        """Return all instances heard of and not expired, this node included."""
        return [_instance(record.alias) for record in self._cached(SERVICE, _PTR)]

    def txt(self, instance: str) -> bytes | None:
        """Return the newest TXT record of `instance`; None if none has been heard.

        If an instance returns to a record that it had within the last 10 s, no change is reported, because
        zeroconf's cache still holds the old one. Signed announcements never repeat.
        """
        # The record that expires last: after an update the cache keeps the old one for 1 s more.
        records = self._cached(f"{instance}.{SERVICE}", _TXT)
        newest = max(records, key=lambda r: r.created + 1000 * r.ttl, default=None)
        return None if newest is None else bytes(newest.text)

    def query(self, instance: str) -> None:
        """Ask the network for the records of `instance`; an answer is reported as a change."""
        import asyncio

        loop = self._zeroconf.loop
        assert loop is not None, "runs since the constructor"
        lookup = self._zeroconf.async_get_service_info(
            SERVICE, f"{instance}.{SERVICE}", QUERY_MS_MAX
        )
        question = asyncio.run_coroutine_threadsafe(lookup, loop)
        self._questions.add(question)
        question.add_done_callback(self._questions.discard)

    async def follow_interfaces(self) -> None:
        """Use interfaces that have appeared since, or that have replaced others, and of those given only these."""
        await self._in_thread(self._follow_interfaces)

    async def close(self) -> None:
        """Say goodbye, then stop and join zeroconf's threads."""
        await self._in_thread(self.close_now)

    async def _in_thread(self, function: Callable[[], None]) -> None:
        # Abandoned when cancelled, so that the node does not wait for zeroconf's own limits (10 s and
        # more). The lock makes `close` wait for an abandoned call, and nothing runs after `close`.
        def exclusive() -> None:
            with self._lock:
                if not self._zeroconf.done:
                    function()

        await _run(exclusive)

    def _publish(self, txt: bytes, port: int) -> None:
        from zeroconf import ServiceInfo

        info = ServiceInfo(
            SERVICE,
            f"{self._instance}.{SERVICE}",
            port=port,
            properties=txt,
            server=f"{self._instance}.local.",
            parsed_addresses=_addresses_to_publish(list(self._candidates)),
        )
        if self._published is None:
            # No probing for the name, which is random: this takes milliseconds instead of 1.1 s.
            self._zeroconf.register_service(info, cooperating_responders=True)
        else:
            self._zeroconf.update_service(info)
        self._published = info

    def _withdraw(self) -> None:
        # Not unregister_service: in 0.154 it returns before the second and third goodbye. These would
        # follow the next announcement and end it, or be lost when the responder closes.
        self._zeroconf.unregister_all_services()
        self._published = None

    def _present(self) -> dict[str, int]:
        """Return the addresses that might be used, each with the index of its interface, or 0 if there is none."""
        here = address_indexes()
        return here if self._given is None else {one: here.get(one, 0) for one in self._given}

    def _follow_interfaces(self) -> None:
        before, candidates = self._candidates, self._present()
        if candidates == before and self._usable.issuperset(candidates):
            return
        # One that cannot be used may be later, as when a program ends that has the port for itself.
        usable, _ = multicast_addresses(candidates)
        if candidates == before and self._usable.issuperset(usable):
            return
        kept = [one for one in usable if candidates[one] == before.get(one)]
        if not kept:
            raise ResponderError("none of its interfaces is left")
        logger.info("zeroconf: interfaces are now %s", ", ".join(usable))
        self._candidates, self._usable = candidates, {*usable}
        if any(before.get(one) for one in usable if one not in kept):
            # First without interfaces that have replaced others: zeroconf compares addresses, and would keep the
            # sockets of the former ones, which hear nothing any more.
            self._zeroconf.update_interfaces(kept)
        self._zeroconf.update_interfaces(usable)

    def close_now(self) -> None:
        """Do what `close` does, blocking."""
        # Questions last longer than zeroconf waits for them before it ends its loop, and asyncio would complain of
        # each on stderr.
        for question in tuple(self._questions):
            question.cancel()
        self._browser.cancel()
        try:
            self._zeroconf.close()
        except Exception:
            # It gives up halfway if its loop is late, as after SIGSTOP: its thread and sockets would stay, and it
            # would go on answering for this node. It can be closed again.
            self._zeroconf.close()

    def _changed(
        self,
        zeroconf: Zeroconf,
        service_type: str,
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        self._on_change(_instance(name), state_change.name != "Removed")

    def _cached(self, name: str, type_: int) -> list[Any]:
        from zeroconf import current_time_millis

        now_ms = current_time_millis()
        records = self._zeroconf.cache.get_all_by_details(name, type_, _IN)
        return [record for record in records if not record.is_expired(now_ms)]


def _instance(name: str) -> str:
    return name.removesuffix(f".{SERVICE}").lower()


def _check_descriptors(count: int) -> None:
    """Check that so many more descriptors are available; raise ResponderError if not.

    If zeroconf's thread gets none for its loop, the thread ends, and zeroconf's constructor waits for it
    for ever, with its sockets open.
    """
    with ExitStack() as stack:
        for _ in range(count):
            try:
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                raise ResponderError(
                    f"zeroconf needs {count} file descriptors: {error.strerror}"
                ) from error


def _addresses_to_publish(candidates: list[str]) -> list[str]:
    """Return the addresses to publish. Loopback, which each host takes for itself, only if there is nothing else."""
    routable = [address for address in candidates if not address.startswith("127.")]
    return (routable or candidates)[:ADDRESSES_MAX]


async def _run(call: Callable[[], T], limiter: trio.CapacityLimiter | None = None) -> T:
    """Call `call` in a thread, which is abandoned when cancelled; turn errors about this machine or zeroconf into
    ResponderError."""
    try:
        return await run_in_thread(partial(_translate_errors, call), limiter)
    except OSError as error:
        raise ResponderError(error.strerror) from error


def _translate_errors(call: Callable[[], T]) -> T:
    from zeroconf import Error

    try:
        return call()
    except (OSError, RuntimeError, Error) as error:
        raise ResponderError(str(error) or type(error).__name__) from error
