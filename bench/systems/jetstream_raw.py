"""JetStream without a client library: publishes whose acks come to an inbox, and pull requests for many messages.

Pull requests do not expire, so the next one is at the server while the messages of the previous one are processed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.loops.loop import Loop

from .jetstream import ALWAYS, STREAM, JetStreamSystem
from .nats_raw import CONNECT, END
from .raw_frames import Cut, Frames
from .raw_socket import Stream
from .raw_stored import OUTSTANDING, RawConsumer, RawPublisher, RawStored
from .system import UNREAD_BYTES_MAX, Place, Received

INBOX_NUMBER, ANSWERS_NUMBER = b"1", b"2"
"""Subscription ids: of acks of publishes or deliveries, and of answers to API requests."""
PULLS, FETCH_COUNT = 2, 500
ACK_PENDING_MAX = 20_000
ACK_WAIT_NS = 300_000_000_000


class JetStreamRaw(JetStreamSystem, RawStored):
    modules = ()

    def __init__(self, *, each: bool = False) -> None:
        client = (
            "PUB and MSG over a socket, up to 500 in one write; "
            f"{PULLS} pulls of {FETCH_COUNT}, an ack for all of each{ALWAYS * each}"
        )
        super().__init__("jetstream-raw", client, "page cache", each=each)
        self.outstanding = OUTSTANDING  # With `each`, too: the server syncs each message anyway.

    def publisher(self, place: Place, loop: Loop, replied: Received | None) -> Publisher:
        return Publisher(place, loop, replied)

    def consumer(self, place: Place, loop: Loop, received: Received) -> Puller:
        return Puller(place, loop, received)


class Publisher(RawPublisher):
    def greet(self) -> None:
        """Make the stream, with a size limit under an open load, as only at full throttle a consumer reads it."""
        self._talk = Talk(self.stream)
        self._talk.make_stream({"max_bytes": UNREAD_BYTES_MAX} if self._replied else {})

    def frames(self) -> MessageFrames:
        return MessageFrames(self._talk.line)

    def confirmed(self, parts: Sequence[bytes]) -> int:
        for part in parts:
            if not part.startswith(b'{"stream":'):
                raise ConnectionError(f"the server answers {part[:100]!r}")
        return len(parts)

    def around(self) -> tuple[bytes, bytes]:
        return f"PUB {STREAM} {self._talk.inbox} {self.place.size_bytes}\r\n".encode(), END


class Puller(RawConsumer):
    def greet(self) -> None:
        self._talk = Talk(self.stream)
        self._talk.make_stream({})
        config = {
            "durable_name": STREAM, "ack_policy": "all", "deliver_policy": "all",
            "ack_wait": ACK_WAIT_NS, "max_ack_pending": ACK_PENDING_MAX,
        }  # fmt: skip
        words = {"stream_name": STREAM, "config": config}
        self._talk.ask(f"CONSUMER.DURABLE.CREATE.{STREAM}.{STREAM}", words)
        self._left, self._unacked, self._settled = FETCH_COUNT, 0, False

    def frames(self) -> MessageFrames:
        self._messages = MessageFrames(self._talk.line, self._told)
        return self._messages

    def begin(self) -> None:
        for _ in range(PULLS):
            self._pull()

    def _pull(self) -> None:
        self._talk.say(
            f"CONSUMER.MSG.NEXT.{STREAM}.{STREAM}", self._talk.inbox, {"batch": FETCH_COUNT}
        )

    async def took(self, parts: Sequence[bytes]) -> None:
        await self.received(parts)
        self._left -= len(parts)
        self._unacked += len(parts)
        if self._left <= 0:
            self._ack()
        while self._left <= 0:
            self._left += FETCH_COUNT
            self._pull()

    def _ack(self) -> None:
        """Ack the last message, and with it all before it."""
        self.stream.write(b"PUB " + self._messages.reply + b" 4\r\n+ACK\r\n")
        self._unacked = 0

    async def settle(self) -> None:
        """Ack the rest, and ask until the server waits for no more acks: it does not answer them."""
        if self._unacked:
            self._ack()
        self._settled = False
        self._ask_settled()
        while not self._settled:
            self.stream.wait()

    def _ask_settled(self) -> None:
        self._talk.say(f"CONSUMER.INFO.{STREAM}.{STREAM}", self._talk.answers, {})

    def _told(self, answer: bytes) -> None:
        self._settled = not json.loads(answer)["num_ack_pending"]
        if not self._settled:
            self._ask_settled()


class Talk:
    """API requests over one connection, and the subjects to which the server answers."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        name = secrets.token_hex(8)
        self.inbox, self.answers = f"inbox.{name}", f"answers.{name}"
        stream.read_past(END)
        subscribe = b"".join(
            b"SUB " + subject.encode() + b" " + number + END
            for subject, number in ((self.inbox, INBOX_NUMBER), (self.answers, ANSWERS_NUMBER))
        )
        stream.write(CONNECT + subscribe + b"PING\r\n")
        stream.read_past(b"PONG\r\n")

    def make_stream(self, limits: Mapping[str, int]) -> None:
        words = {"name": STREAM, "subjects": [STREAM], "storage": "file", **limits}
        self.ask(f"STREAM.CREATE.{STREAM}", words)

    def ask(self, what: str, words: Mapping[str, Any]) -> None:
        """Send an API request and read its answer, which is possible only before the stream is followed.

        Raises ConnectionError if the server refuses.
        """
        self.say(what, self.answers, words)
        head = self._stream.read_past(END)
        answer = json.loads(self._stream.read_exactly(int(head.split()[-1]) + len(END)))
        if "error" in answer:
            raise ConnectionError(f"the server answers {answer['error']}")

    def say(self, what: str, reply: str, words: Mapping[str, Any]) -> None:
        body = json.dumps(words)
        self._stream.write(f"PUB $JS.API.{what} {reply} {len(body)}\r\n{body}\r\n".encode())

    def line(self, words: bytes) -> None:
        """Handle a line between messages. Raises ConnectionError if it is an error."""
        if words == b"PING":
            self._stream.write(b"PONG\r\n")
        elif words.startswith(b"-ERR"):
            raise ConnectionError(f"the server answers {words!r}")


class MessageFrames(Frames):
    """Cuts messages, whose heads differ in length. `reply` is the subject to which the inbox's last message is acked.

    Args:
        line: called with each line between messages.
        told: called with each message that is not the inbox's.
    """

    def __init__(
        self, line: Callable[[bytes], None], told: Callable[[bytes], None] = lambda _: None
    ) -> None:
        self._line, self._told = line, told
        self.reply = b""

    def cut(self, data: bytes) -> Cut:
        payloads, at, size = list[bytes](), 0, len(data)
        while at < size:
            end = data.find(END, at)
            if end < 0:
                return payloads, at, size - at + 1
            words = data[at:end].split(b" ")
            start = end + len(END)
            if words[0] != b"MSG":
                self._line(data[at:end])
                at = start
                continue
            end = start + int(words[-1])
            if end + len(END) > size:
                return payloads, at, end + len(END) - at
            if words[2] == INBOX_NUMBER:
                payloads.append(data[start:end])
                self.reply = words[3]
            else:
                self._told(data[start:end])
            at = end + len(END)
        return payloads, at, 1


SYSTEMS = (JetStreamRaw(), JetStreamRaw(each=True))
