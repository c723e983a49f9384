from __future__ import annotations

import pytest

from mesh.errors import RemoteProtocolError
from mesh.protocol.tunnel import BROKEN, CLOSED, OPEN, OPENING, TunnelEnd
from tests.machines import OTHER, make_link

WINDOW = 1000


class Bench:
    """A writer (the opener) and a reader, and how often each was woken."""

    def __init__(self) -> None:
        self.woken = {"writer": 0, "reader": 0}
        self.writer = self.make("writer", opener=True)
        self.reader = self.make("reader", opener=False)
        self.writer.accepted(WINDOW)
        self.reader.accepted(WINDOW)
        self.woken = dict.fromkeys(self.woken, 0)

    def make(self, name: str, *, opener: bool) -> TunnelEnd:
        def wake() -> None:
            self.woken[name] += 1

        end = TunnelEnd(make_link(), 7, "x/y", opener=opener, window_bytes=WINDOW)
        end.wake = wake
        return end

    def send(self, *sizes: int) -> None:
        for size in sizes:
            assert self.writer.may_send(size)
            self.writer.note_sent(size)
            self.reader.received(bytes(size))

    def read(self) -> int:
        """Read one part, return the credit if it is worth a word; the writer has it at once."""
        self.reader.read()
        return self.pay() if self.reader.credit_due else 0

    def pay(self) -> int:
        """Return all the credit there is."""
        credit = self.reader.take_owed()
        if credit:
            self.writer.credited(credit)
        return credit


def test_an_opener_waits_for_its_window_and_an_acceptor_is_open() -> None:
    bench = Bench()
    fresh, acceptor = bench.make("writer", opener=True), bench.make("reader", opener=False)
    assert (fresh.state, fresh.may_send(0)) == (OPENING, False)
    assert (acceptor.state, acceptor.wire_id) == (OPEN, 7 << 1)
    fresh.accepted(10)
    assert (fresh.state, fresh.credit_bytes, fresh.peer_window_bytes) == (OPEN, 10, 10)
    assert bench.woken["writer"] == 1


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_that_is_none_is_refused(window: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"window of {window} bytes"):
        Bench().make("writer", opener=True).accepted(window)


def test_accepted_twice_is_refused() -> None:
    bench = Bench()
    with pytest.raises(RemoteProtocolError, match="accepted"):
        bench.writer.accepted(WINDOW)
    bench.send(WINDOW)
    with pytest.raises(RemoteProtocolError, match="accepted"):
        bench.writer.accepted(WINDOW)


def test_parts_arrive_as_they_were_sent() -> None:
    bench = Bench()
    for part in (b"a", b"", b"ccc"):
        bench.reader.received(part)
    assert bench.woken["reader"] == 3
    assert [bench.reader.read() for _ in range(3)] == [b"a", b"", b"ccc"]
    assert not bench.reader.readable


def test_a_part_costs_its_size_and_at_least_a_byte() -> None:
    bench = Bench()
    bench.send(10, 0)
    assert bench.writer.credit_bytes == WINDOW - 11
    bench.send(WINDOW - 11)
    assert not bench.writer.may_send(0)


def test_sending_without_credit_is_a_bug_of_ours() -> None:
    bench = Bench()
    with pytest.raises(AssertionError, match="without credit"):
        bench.writer.note_sent(WINDOW + 1)


def test_more_than_the_window_is_refused() -> None:
    bench = Bench()
    bench.reader.received(bytes(WINDOW))
    with pytest.raises(RemoteProtocolError, match="1001 bytes in a tunnel, the window is 1000"):
        bench.reader.received(b"")


def test_what_was_read_and_not_yet_returned_counts_too() -> None:
    bench = Bench()
    bench.send(100, 1)
    assert bench.read() == 0
    bench.reader.received(bytes(899))
    with pytest.raises(RemoteProtocolError, match="1001 bytes"):
        bench.reader.received(b"x")


# Credit


def test_credit_comes_back_by_the_quarter() -> None:
    bench = Bench()
    bench.send(*[50] * 20)
    assert [bench.read() for _ in range(10)] == [0, 0, 0, 0, 250, 0, 0, 0, 0, 250]


@pytest.mark.parametrize("sizes", [[1], [100], [249], [100, 100], [600, 240], [300, 300, 300]])
@pytest.mark.parametrize("next_size", [0, 1, 750, 751, 752, 999, WINDOW])
@pytest.mark.parametrize("asked_after", [0, 1, 2, 3])
def test_once_all_is_read_the_next_part_may_be_sent(
    sizes: list[int], next_size: int, asked_after: int
) -> None:
    """Found: a quarter of the window never came back, and a part as large as it waited for ever."""
    bench = Bench()
    bench.send(*sizes)
    for n in range(max(len(sizes), asked_after) + 1):
        if n == asked_after and not bench.writer.may_send(next_size):
            wanted = bench.writer.request_credit(next_size)
            assert (next_size, wanted > 0) in ((next_size, False), (max(next_size, 752), True))
            if wanted:
                bench.reader.peer_blocked(wanted)
                if bench.reader.credit_due:
                    bench.pay()
        if n < len(sizes):
            bench.read()
    assert bench.writer.may_send(next_size)


def test_a_window_larger_than_we_use_keeps_no_credit_back() -> None:
    """Its reader's quarter may be more than all that we let wait here."""
    bench = Bench()
    outbox = bench.writer.link.limits.outbox_bytes
    writer, reader = bench.make("writer", opener=True), bench.make("reader", opener=False)
    reader.window_bytes = 8 * outbox
    writer.accepted(reader.window_bytes)
    writer.note_sent(outbox)
    reader.received(bytes(outbox))
    reader.read()
    assert not reader.credit_due
    reader.peer_blocked(writer.request_credit(1))
    assert reader.credit_due
    writer.credited(reader.take_owed())
    assert writer.may_send(outbox)


@pytest.mark.parametrize("wanted", [0, -1, 1351])
def test_waiting_for_credit_that_makes_no_sense_is_refused(wanted: int) -> None:
    bench = Bench()
    bench.send(350)
    bench.read()
    bench.reader.peer_blocked(1350)
    with pytest.raises(RemoteProtocolError, match=f"blocked until {wanted} bytes"):
        bench.reader.peer_blocked(wanted)


@pytest.mark.parametrize("size", [0, -1, 101])
def test_credit_that_makes_no_sense_is_refused(size: int) -> None:
    bench = Bench()
    bench.send(100)
    with pytest.raises(RemoteProtocolError, match=f"credit of {size} bytes"):
        bench.writer.credited(size)


def test_credit_wakes_the_writer() -> None:
    bench = Bench()
    bench.send(100)
    bench.writer.credited(100)
    assert (bench.woken["writer"], bench.writer.credit_bytes) == (1, WINDOW)


# Endings


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_closed_when_both_have_ended(first: str) -> None:
    bench = Bench()
    end = bench.writer
    (end.note_eof_sent if first == "ours" else end.peer_ended)()
    assert end.state == OPEN
    (end.peer_ended if first == "ours" else end.note_eof_sent)()
    assert (end.state, bench.woken["writer"]) == (CLOSED, 1)


def test_closed_though_both_ended_before_it_was_accepted() -> None:
    """Found: data and end may overtake the word of acceptance; the end then stayed for good."""
    end = Bench().make("writer", opener=True)
    end.peer_ended()
    end.note_eof_sent()
    assert end.state == OPENING
    end.accepted(10)
    assert end.state == CLOSED


def test_what_came_before_the_end_can_still_be_read() -> None:
    bench = Bench()
    bench.send(10)
    bench.reader.peer_ended()
    bench.reader.note_eof_sent()
    assert (bench.reader.state, bench.reader.readable) == (CLOSED, True)
    assert len(bench.reader.read()) == 10


def test_data_after_the_end_is_refused() -> None:
    bench = Bench()
    bench.reader.peer_ended()
    with pytest.raises(RemoteProtocolError, match="after its end"):
        bench.reader.received(b"x")


def test_broken_drops_what_was_not_read() -> None:
    bench = Bench()
    bench.send(10)
    bench.reader.mark_broken("link lost")
    assert (bench.reader.state, bench.reader.reason) == (BROKEN, "link lost")
    assert not bench.reader.readable
    assert bench.woken["reader"] == 2
    bench.reader.mark_broken("again")
    assert bench.reader.reason == "link lost"
    assert bench.reader.statistics().unread_bytes == 0


def test_closed_does_not_break() -> None:
    bench = Bench()
    bench.writer.note_eof_sent()
    bench.writer.peer_ended()
    bench.writer.mark_broken("link lost")
    assert (bench.writer.state, bench.writer.reason) == (CLOSED, "")


def test_broken_does_not_close() -> None:
    bench = Bench()
    bench.writer.mark_broken("link lost")
    bench.writer.note_eof_sent()
    bench.writer.peer_ended()
    assert bench.writer.state == BROKEN


def test_who_stops_reading_lets_the_rest_run_out() -> None:
    bench = Bench()
    bench.send(600)
    bench.reader.stop_reading()
    assert not bench.reader.readable
    bench.send(400)
    assert not bench.reader.readable
    assert bench.woken["reader"] == 1
    assert bench.reader.statistics().unread_bytes == 0
    with pytest.raises(RemoteProtocolError, match="1001 bytes"):
        bench.reader.received(bytes(1001))


def test_the_writer_learns_that_nobody_reads() -> None:
    bench = Bench()
    bench.writer.peer_stops()
    assert (bench.writer.peer_stopped, bench.woken["writer"]) == (True, 1)


def test_statistics_count_parts_and_bytes() -> None:
    bench = Bench()
    bench.send(10, 0, 300)
    bench.read()
    sent, received = bench.writer.statistics(), bench.reader.statistics()
    assert (sent.peer, sent.target, sent.state) == (OTHER, "x/y", OPEN)
    assert (sent.sent_parts, sent.sent_bytes, sent.credit_bytes) == (3, 310, WINDOW - 311)
    assert (received.received_parts, received.received_bytes) == (3, 310)
    assert received.unread_bytes == 301
