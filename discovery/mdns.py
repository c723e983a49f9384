"""Finds nodes by multicast DNS (zeroconf), without any configuration.

    our announcement --> TXT record --> multicast --> everyone's sink
    wait 1 s: did we hear ourselves? --no--> problem(), and new sockets every 30 s

Announcements of others are reported once per content. Whether a node is alive is not learned here: goodbyes
are heard, crashes are not. Hearing our own announcement proves that multicast works on this machine; it
does not prove that the network forwards it, so a node that finds nobody and reports no problem may
still need a seed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from .errors import ResponderError
from .finder import Found, Sink
from .handover import Handover
from .responder import OpenResponder, Responder, open_zeroconf
from .txt import decode_txt, encode_txt

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = 8
"""The wait for our echo is cut into so many parts. A blocked loop uses up only one of them, and hears in the
others what came meanwhile."""
_INSTANCE = re.compile(r"[0-9a-z-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MdnsSettings:
    """Times and limits of `MdnsFinder`."""

    echo_s: float = 1.0
    """If our own announcement is not heard for so long, there is no multicast. Usually it is heard after 5 ms."""
    retry_s: float = 30.0
    """Pause between attempts while multicast does not work."""
    relist_s: float = 10.0
    """Pause between full listings, which find dropped changes and new interfaces."""
    goodbye_s_max: float = 3.0
    """Longest time that closing or withdrawing may delay the node. Usually it takes 0.3 s."""
    instances_max: int = 4096
    """Other nodes remembered; bounds the memory that a flood of invented ones can cost."""
    queries_max: int = 50
    """Questions per `relist_s` about instances whose announcement was lost."""


@dataclass(frozen=True, slots=True)
class MdnsStatistics:
    """Counters since construction, and the present number of `instances`."""

    instances: int
    """Other nodes heard of that have not said goodbye, whether readable or not."""
    reported: int
    unreadable: int
    """Records of our service type that contain no announcement."""
    dropped: int
    """Changes dropped because of a limit; the next listing makes up for them."""


@dataclass(frozen=True, slots=True)
class _Publication:
    txt: bytes
    port: int


class MdnsFinder:
    """Announces this node as `instance`, a random name in lower-case hex, and reports all others.

    `interfaces` are the IPv4 addresses of this machine to use; None means all, loopback included.
    """

    source = "zeroconf"
    place = ""
    endpoints: Sequence[str] = ()
    each_answers = False

    def __init__(
        self,
        instance: str,
        *,
        interfaces: Sequence[str] | None = None,
        settings: MdnsSettings | None = None,
        open_responder: OpenResponder = open_zeroconf,
    ) -> None:
        assert _INSTANCE.fullmatch(instance), f"not an instance name: {instance!r}"
        self._instance, self._interfaces = instance, interfaces
        self._settings = settings or MdnsSettings()
        self._open_responder = open_responder
        self._wanted: _Publication | None = None
        self._published: _Publication | None = None
        self._wanted_changed, self._published_changed, self._echo_heard = (
            trio.Event(),
            trio.Event(),
            trio.Event(),
        )
        self._open_problem: str | None = None
        self._echo_problem: str | None = None
        self._seen: dict[str, bytes] = {}  # instance -> digest of what was reported last
        self._reported = self._unreadable = self._dropped = 0
        self._queries = 0  # since the last relist
        self._handover: Handover | None = None

    def __repr__(self) -> str:
        return f"MdnsFinder({self._instance}, {self.statistics()}, problem={self.problem()!r})"

    async def announce(self, announcement: bytes, port: int) -> None:
        """See `Finder.announce`. Raises AnnouncementTooLarge."""
        self._set_wanted(_Publication(encode_txt(announcement), port))

    async def withdraw(self) -> None:
        """See `Finder.withdraw`."""
        self._set_wanted(None)
        with trio.move_on_after(self._settings.goodbye_s_max):
            while self._published is not None:
                await self._published_changed.wait()

    def problem(self) -> str | None:
        """See `Finder.problem`."""
        return self._open_problem or self._echo_problem

    def statistics(self) -> MdnsStatistics:
        """Return the counters at this moment."""
        dropped = self._dropped + (self._handover.dropped if self._handover else 0)
        return MdnsStatistics(len(self._seen), self._reported, self._unreadable, dropped)

    # Ctrl-C is raised elsewhere: here it could come between a responder's opening and the block that closes it.
    @trio.lowlevel.enable_ki_protection
    async def run(
        self, sink: Sink, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Finder.run`. Says goodbye when cancelled, within `goodbye_s_max`."""
        handover = self._handover = Handover(instances_max=self._settings.instances_max)
        started = False
        while True:
            responder = await self._open(handover)
            if not started:
                task_status.started()
                started = True
            if responder is not None:
                await self._session(responder, handover, sink)
            if self._open_problem is not None:
                await trio.sleep(self._settings.retry_s)

    async def _open(self, handover: Handover) -> Responder | None:
        try:
            responder = await self._open_responder(self._instance, self._interfaces, handover.put)
        except ResponderError as error:
            self._open_problem = f"no multicast on this machine: {error}"
            return None
        self._open_problem = None
        return responder

    async def _session(self, responder: Responder, handover: Handover, sink: Sink) -> None:
        """Use one set of sockets, until cancelled or until they should be replaced."""
        self._echo_heard = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report_changes, responder, handover, sink)
                nursery.start_soon(self._publish, responder)
                nursery.start_soon(self._relist, responder, sink)
                await self._wait_no_echo()
                nursery.cancel_scope.cancel()
        except* ResponderError as errors:
            self._open_problem = f"zeroconf failed: {errors.exceptions[0]}"
        finally:
            self._published = None
            self._notify_published()
            with trio.CancelScope(shield=True, deadline=self._deadline_s()):
                try:
                    await responder.close()
                except ResponderError as error:
                    self._open_problem = f"zeroconf failed to close: {error}"

    async def _wait_no_echo(self) -> None:
        """Return when our first announcement was not heard back for `echo_s` and then `retry_s`; else never.

        Once it was heard, this is not checked again: `Responder.follow_interfaces` replaces sockets that cannot hear
        any more, and all others hear again by themselves.
        """
        while True:
            while self._wanted is None:
                await self._wanted_changed.wait()
            if await self._wait_echo(self._settings.echo_s):
                break
            if self._wanted is None:
                continue  # The announcement was withdrawn before it could be heard.
            self._echo_problem = (
                "no multicast on this machine: our own announcement did not come back within "
                f"{self._settings.echo_s:.1f} s (a firewall, or a container without multicast?)"
            )
            if not await self._wait_echo(self._settings.retry_s):
                return
            break
        self._echo_problem = None
        await trio.sleep_forever()

    async def _wait_echo(self, wait_s: float) -> bool:
        for _ in range(PARTS):
            with trio.move_on_after(wait_s / PARTS):
                await self._echo_heard.wait()
                return True
        return self._echo_heard.is_set()

    async def _publish(self, responder: Responder) -> None:
        """Publish or withdraw until the published state is the wanted one, one call at a time.

        zeroconf repeats each broadcast for 0.45 s: with two calls at once an old announcement could follow a new one.
        """
        while True:
            wanted, wanted_changed = self._wanted, self._wanted_changed
            if wanted != self._published:
                if wanted is None:
                    await responder.withdraw()
                else:
                    await responder.publish(wanted.txt, wanted.port)
                self._published = wanted
                self._notify_published()
            await wanted_changed.wait()

    async def _report_changes(self, responder: Responder, handover: Handover, sink: Sink) -> None:
        while True:
            for instance, change in (await handover.take()).items():
                if change.said_goodbye:
                    self._seen.pop(instance, None)
                if change.present:
                    self._report_if_new(instance, responder, sink)

    async def _relist(self, responder: Responder, sink: Sink) -> None:
        """List all instances from time to time: a change may have been dropped, or a packet lost."""
        while True:
            await trio.sleep(self._settings.relist_s)
            await responder.follow_interfaces()
            present = responder.instances()
            for gone in self._seen.keys() - set(present):
                del self._seen[gone]
            self._queries = 0
            for instance in present:
                self._report_if_new(instance, responder, sink)

    def _report_if_new(self, instance: str, responder: Responder, sink: Sink) -> None:
        """Report `instance` if its announcement is new; ask the network for one that has not been heard yet."""
        if instance == self._instance:
            self._echo_heard.set()
            return
        txt = responder.txt(instance)
        if txt is None:
            self._query(instance, responder)
            return
        digest = hashlib.blake2b(txt, digest_size=16).digest()
        if self._seen.get(instance) == digest:
            return
        if instance not in self._seen and len(self._seen) >= self._settings.instances_max:
            self._dropped += 1
            return
        self._seen[instance] = digest
        announcement = decode_txt(txt)
        if announcement is None:
            self._unreadable += 1
            return
        self._reported += 1
        sink(Found(announcement=announcement))

    def _query(self, instance: str, responder: Responder) -> None:
        # Limited, so that a sender of invented names cannot make us flood the network with questions.
        if self._queries < self._settings.queries_max:
            self._queries += 1
            responder.query(instance)

    def _set_wanted(self, publication: _Publication | None) -> None:
        self._wanted = publication
        self._wanted_changed.set()
        self._wanted_changed = trio.Event()

    def _notify_published(self) -> None:
        self._published_changed.set()
        self._published_changed = trio.Event()

    def _deadline_s(self) -> float:
        return trio.current_time() + self._settings.goodbye_s_max
