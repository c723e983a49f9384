"""`mesh-broker read`, and what decides who may: vhosts and permissions from a shell."""

from __future__ import annotations

import json
import select
import signal
from pathlib import Path

import pytest

from tests.integration.test_cli_broker import good, refused, served
from tests.shell import Shell

LONG = "k" * 256


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, "durable.cli")
    shell.environment["MESH_SETTLE_S"] = "5"
    return shell


def test_a_stream_is_read_from_where_was_said_and_goes_on_under_its_cursor(shell: Shell) -> None:
    lines = [f"event {number}".encode() for number in range(10)]
    with served(shell):
        good(shell, "declare-stream", "audit")
        good(shell, "publish", "audit", "--lines", "--header", "n=1", "--header", "who=me", stdin=b"\n".join(lines))  # fmt: skip
        count = ("--count", "3")
        assert good(shell, "read", "audit", *count).stdout.splitlines() == lines[:3]
        done = good(shell, "read", "audit", "--count", "1", "--json", "--start", "7")
        row = json.loads(done.stdout)
        assert (row["offset"], row["key"], row["payload"]) == (7, "audit", "event 7")
        assert (row["headers"], row["lost"]) == ({"n": 1, "who": "me"}, 0)
        beyond = good(shell, "read", "audit", "--start", "50", "--idle", "0.5")
        assert (beyond.stdout, beyond.stderr.splitlines()) == (
            b"", [b"mesh-broker: stream audit has no offset 50 yet: the next message gets offset 10"],
        )  # fmt: skip
        since = ("--start", row["published"])
        assert good(shell, "read", "audit", *since, "--count", "1").stdout.splitlines()[0] in lines
        under = ("--cursor", "me")
        assert good(shell, "read", "audit", *under, *count).stdout.splitlines() == lines[:3]
        again = good(shell, "read", "audit", *under, *count, "--start", "50")
        assert (again.stdout.splitlines(), again.stderr) == (lines[3:6], b""), "not from --start"
        left = good(shell, "read", "audit", *under, "--idle", "1").stdout.splitlines()
        assert left == lines[6:], "to the end"
        assert good(shell, "read", "audit", *under, "--idle", "0.5").stdout == b"", "all were"
        reader = shell.start("read", "audit", "--start", "last")
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"event 9\n"
            good(shell, "publish", "audit", "one more")
            assert reader.stdout.readline() == b"one more\n"
            reader.send_signal(signal.SIGTERM)
            assert reader.wait(10) == 0
        finally:
            reader.kill()
            reader.communicate()
        assert "did you mean 'audit'?" in refused(shell, "read", "audti")
        good(shell, "declare-queue", "jobs")
        assert "consume or delete it as a queue" in refused(shell, "read", "jobs")


def test_a_message_may_be_given_little_time(shell: Shell) -> None:
    with served(shell):
        good(shell, "declare-queue", "dead")
        good(
            shell, "declare-queue", "jobs", "dead_letter_exchange=", "dead_letter_routing_key=dead"
        )
        good(shell, "publish", "jobs", "late", "--ttl", "0")
        done = good(shell, "consume", "dead", "--count", "1", "--json")
        (death,) = json.loads(done.stdout)["deaths"]
        assert (death["queue"], death["reason"]) == ("jobs", "expired")


def test_a_queue_is_emptied_by_who_knows_no_number(shell: Shell) -> None:
    with served(shell):
        good(shell, "declare-queue", "jobs")
        good(shell, "publish", "jobs", "--lines", stdin=b"1\n2\n3")
        assert good(shell, "consume", "jobs", "--idle", "1").stdout == b"1\n2\n3\n"
        assert good(shell, "consume", "jobs", "--idle", "0.5").stdout == b"", "acknowledged"


def test_a_look_changes_nothing_however_it_ends(shell: Shell) -> None:
    """Found: each counted as a return of all that it saw, until `delivery_limit` dropped them."""
    lines = [b"1", b"2", b"3"]
    with served(shell):
        good(shell, "declare-queue", "jobs", "delivery_limit=1")
        good(shell, "publish", "jobs", "--lines", stdin=b"\n".join(lines))
        for until in (("--count", "2"), ("--idle", "0.5")):
            done = good(shell, "consume", "jobs", "--peek", *until)
            assert done.stdout.splitlines() == lines[:2] + lines[2:] * ("--idle" in until)
        looks = shell.start("consume", "jobs", "--peek")
        try:
            assert looks.stdout is not None
            assert [looks.stdout.readline().rstrip() for _ in lines] == lines
            looks.send_signal(signal.SIGINT)
            assert looks.wait(10) == 130
        finally:
            looks.kill()
            looks.communicate()
        done = good(shell, "consume", "jobs", "--count", "3", "--json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(row["payload"].encode(), row["redelivered"]) for row in rows] == [
            (line, 0) for line in lines
        ]


def test_what_a_killed_consumer_held_is_redelivered_at_once(shell: Shell) -> None:
    """SIGKILL: it says nothing to anybody. Who waits beside it gets everything, in the old order."""
    lines = [f"order {number}".encode() for number in range(10)]
    with served(shell):
        good(shell, "declare-queue", "jobs")
        good(shell, "publish", "jobs", "--lines", stdin=b"\n".join(lines))
        holds = shell.start("consume", "jobs", "--peek")
        assert holds.stdout is not None
        held = [holds.stdout.readline().rstrip() for _ in lines]
        waits = shell.start("consume", "jobs", "--count", "10", "--json")
        try:
            assert waits.stdout is not None
            while (found := _jobs(shell))["consumers"] < 2:
                pass
            assert (held, found["unacked"]) == (lines, 10)
            holds.kill()
            assert select.select([waits.stdout], [], [], 2)[0], "nothing within 2 s"
            rows = [json.loads(waits.stdout.readline()) for _ in lines]
            assert [row["payload"].encode() for row in rows] == lines
            assert {row["redelivered"] for row in rows} == {0}, "it only looked"
            assert waits.wait(10) == 0
        finally:
            for process in (holds, waits):
                process.kill()
                process.communicate()


def _jobs(shell: Shell) -> dict[str, int]:
    """What is counted of the queue."""
    found: dict[str, int] = json.loads(good(shell, "status", "--json").stdout)["queues"]["jobs"]
    return found


def test_whoever_prints_ends_when_nobody_reads_on(shell: Shell) -> None:
    """Found: `... | head -1` went on until another message came, and that one was lost to the pipe."""
    with served(shell):
        good(shell, "declare-queue", "jobs")
        good(shell, "declare-stream", "audit")
        for words in (["consume", "jobs"], ["read", "audit", "--cursor", "me"]):
            good(shell, "publish", words[1], "1")
            printer = shell.start(*words)
            try:
                assert printer.stdout is not None
                assert printer.stdout.readline() == b"1\n"
                printer.stdout.close()
                assert printer.wait(5) == 0
            finally:
                printer.kill()
                printer.communicate()
        good(shell, "publish", "jobs", "2")
        assert good(shell, "consume", "jobs", "--idle", "1").stdout == b"2\n", "1 was acknowledged"
        assert good(shell, "read", "audit", "--cursor", "me", "--idle", "1").stdout == b""


def test_vhosts_come_and_go(shell: Shell) -> None:
    with served(shell):
        good(shell, "declare-vhost", "test")
        assert good(shell, "vhosts").stdout == b"/\ntest\n"
        missed = good(shell, "delete-vhost", "tets").stderr
        assert missed == b"mesh-broker: vhost tets does not exist: did you mean 'test'?\n"
        good(shell, "delete-vhost", "test")
        assert json.loads(good(shell, "vhosts", "--json").stdout) == ["/"]
        for there in ([], ["--vhost", "other"]):
            assert "'/' is in use: it always exists" in refused(shell, "delete-vhost", "/", *there)
            good(shell, "declare-vhost", "other")
        assert "delete it from a connection to another vhost" in refused(
            shell, "delete-vhost", "other", "--vhost", "other"
        )


def test_bindings_and_cursors_are_listed(shell: Shell) -> None:
    with served(shell):
        for words in (["bindings"], ["cursors"]):
            nothing = good(shell, *words)
            assert (nothing.stdout, b" no" in nothing.stderr) == (b"", True)
        good(shell, "declare-queue", "jobs", "durability=memory")
        good(shell, "declare-stream", "audit")
        good(shell, "bind", "amq.topic", "audit", "orders.#")
        good(shell, "bind", "amq.headers", "jobs", "--argument", "n=1")
        good(shell, "publish", "audit", "--lines", stdin=b"1\n2\n3")
        good(shell, "read", "audit", "--cursor", "me", "--count", "1")
        assert sorted(good(shell, "bindings").stdout.splitlines()) == [
            b"amq.headers -> jobs, key '', arguments {\"n\": 1}",
            b"amq.topic -> audit, key 'orders.#'",
        ]
        rows = json.loads(good(shell, "bindings", "--json").stdout)
        assert {row["destination"] for row in rows} == {"audit", "jobs"}
        for became in (b"binding removed", b"there was no such binding"):
            ended = good(shell, "unbind", "amq.topic", "audit", "orders.#").stderr
            assert ended == b"mesh-broker: amq.topic to audit: %b\n" % became
        shown = good(shell, "cursors").stdout
        assert shown == b"stream audit, cursor me: at offset 1, 2 behind\n"
        (row,) = json.loads(good(shell, "cursors", "audit", "--json").stdout)
        assert row == {"stream": "audit", "cursor": "me", "offset": 1, "lag": 2}
        assert "did you mean 'audit'?" in refused(shell, "cursors", "audti")
        for command in ("cursors", "delete-stream", "read"):
            assert "no stream 'jobs': a queue has that name" in refused(shell, command, "jobs")


def test_permissions_are_set_shown_and_forgotten(shell: Shell) -> None:
    everything = ("--configure", ".*", "--write", ".*", "--read", ".*")
    with served(shell):
        good(shell, "declare-queue", "jobs")
        assert b"every trusted cluster may do everything" in good(shell, "permissions").stderr
        refused(shell, "set-permission", "shop", "--read", "jobs")
        good(shell, "set-permission", "console", *everything)
        good(shell, "set-permission", "shop", "--read", "jobs")
        shown = good(shell, "permissions").stdout.decode().splitlines()
        assert shown == ["console: configure '.*', write '.*', read '.*'", "shop: read 'jobs'"]
        assert "shop" in refused(shell, "publish", "jobs", "x", "--cluster", "shop")
        missed = good(shell, "clear-permission", "shpo").stderr
        assert missed == b"mesh-broker: there was no permission of shpo: did you mean 'shop'?\n"
        good(shell, "clear-permission", "shop")
        (left,) = json.loads(good(shell, "permissions", "--json").stdout)
        assert left["cluster"] == "console"
        good(shell, "set-permission", "crm", "--configure", "s", "--capture", r"crm\..*")
        assert good(shell, "permissions").stdout.decode().splitlines()[1:] == [
            r"crm: configure 's', capture 'crm\\..*'"
        ]
        pattern = ("declare-stream", "s", "patterns=orders.>", "--cluster", "crm")
        assert "may not capture pattern 'orders.>' in vhost '/'" in refused(shell, *pattern)
        good(shell, "declare-stream", "s", "patterns=crm.>", "--cluster", "crm")
        alone = good(shell, "set-permission", "shop", *everything).stderr
        assert alone == b"mesh-broker: permission of shop set\n"
        shut_out = good(shell, "clear-permission", "console", "--cluster", "shop").stderr
        assert shut_out == b"mesh-broker: permission of console removed\n"


def test_who_shuts_itself_out_is_told(shell: Shell) -> None:
    """Found by a newcomer: nothing was said, and every command after it was refused."""
    with served(shell):
        said = good(shell, "set-permission", "shop", "--configure", ".*").stderr.decode()
        assert (
            "cluster console, which this command joined as, has no permissions in vhost /: " in said
        )
        assert "may not configure" in refused(shell, "declare-queue", "jobs")
        good(shell, "set-permission", "console", "--read", "x", "--cluster", "shop")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["read", "audit", "--start", "yesterday"], "UTC unless it has a zone, got 'yesterday'"),
        (["read", "audit", "--start", "-1"], "--start"),
        (["read", "audit", "--start", str(1 << 63)], f"UTC unless it has a zone, got '{1 << 63}'"),
        (["read", "audit", "--start", "1" * 5000], "UTC unless it has a zone, got '1111"),
        (["read", "audit", "--cursor", ""], "want a name"),
        (["publish", "jobs", "x", "--header", "n"], "want NAME=VALUE, got 'n'"),
        (["declare-queue", "jobs", "x"], "want FIELD=VALUE, got 'x'"),
        (
            ["publish", "jobs", "x", "--header", f"n={1 << 64}"],
            "headers: 'n': Integer value out of",
        ),
        (["publish", "jobs", "x", "--ttl", "-1"], "--ttl: want seconds, 0 to 3153600000, got '-1'"),
        (["publish", "jobs", "x", "--ttl", "1e12"], "0 to 3153600000, got '1e12'"),
        (
            ["consume", "jobs", "--count", "1" * 19],
            "--count: want a whole number, 1 or more, of up to 18",
        ),
        (["consume", "jobs", "--count", "1" * 5000], "of up to 18 digits"),
        (["consume", "jobs", "--idle", "1e999"], "--idle: want seconds, more than 0"),
        (["declare-queue", "jobs", "max_length=0"], "max_length is 0: want an integer of 1 to"),
        (["declare-queue", "jobs", "max_lenght=9"], "did you mean max_length?"),
        (["declare-stream", "audit", "max_age_s=1e300"], "seconds over 0, at most 10000000000"),
        (["set-permission", "shop", "--read", "("], "read is '(': want a regular expression"),
        (["set-permission", "shop", "--capture", "*.new"], "capture is '*.new': want a regular"),
        (["set-permission", "SHOP"], "cluster is 'SHOP': want"),
        (["clear-permission", "SHOP"], "cluster is 'SHOP': want"),
        (["status", "--broker", "BROKER"], "cluster is 'BROKER': want"),
        (["declare-queue", "jobs", "max_length=5", "max_length=6"], "max_length is given twice"),
        (
            ["bind", "amq.headers", "jobs", "--argument", "n=1", "--argument", "n=2"],
            "n is given twice",
        ),
        (["publish", "jobs", "x", "--header", "n=1", "--header", "n=2"], "n is given twice"),
        (["publish", "", "x"], "want a name, got ''"),
        (["consume", LONG], "queue is 'kkk"),
        (["read", LONG], "stream is 'kkk"),
        (["read", "audit", "--cursor", "a\tb"], r"cursor is 'a\tb': want"),
        (["publish", LONG, "x"], "key is 'kkk"),
        (["publish", "jobs", "x", "--exchange", LONG], "exchange is 'kkk"),
    ],
)
def test_what_cannot_be_is_wrong_usage(shell: Shell, words: list[str], says: str) -> None:
    """Found: an offset beyond all that there are was a stack trace, when a broker had been reached."""
    done = shell.run(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr.decode()
