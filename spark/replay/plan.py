"""What is to be replayed, where to, and how fast: parsed from user input and checked, without I/O."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass

from mesh.errors import InvalidName
from mesh.names import check_cluster, check_pattern

from ..errors import ContradictoryOptions, InvalidOption
from ..options import check_regex, check_text, iso

TOPICS, QUEUES = "topics", "queues"
"""The sink's names, repeated here because its options load numpy, which `mesh --help` does without."""
LOOPS_MAX = 1_000_000
SPEED_MAX = 1e6
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SAMPLE_MODULUS = 1_000_000
"""The precision of `sample`: rows are selected by a hash modulo this."""
PYTHON_ONLY = re.compile(r"(?:^|[^\\])(?:\\\\)*(\(\?(?:P|\(|#))")
"""Syntax of Python's regular expressions that Java does not have, unless it is escaped."""
REPLACEMENT_TOKEN = re.compile(r"\\([0-9])|\\?(.)", re.DOTALL)
"""A reference to a group, or a literal character."""
UNLIMITED_BYTES = str(1 << 40)
"""A split size above any log: one task for each group of queues, not one for every 128 MB."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Either a broker's queues and streams of the same names, or topics of the mesh, perhaps renamed."""

    kind: str
    broker: str = ""
    pattern: str = ""
    """A regular expression of Java's; whatever it matches in a topic becomes `replacement`."""
    replacement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """One replay. Times are us since 1970; None: from the first, or to the last message."""

    directory: str
    to: Destination
    vhost: str = "/"
    queues: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    """If both are empty, all queues and streams."""
    topic: str | None = None
    where: str | None = None
    sample: float = 1.0
    from_us: int | None = None
    until_us: int | None = None
    speed: float = 0.0
    """0: as fast as possible."""
    rate: float = 0.0
    """Upper limit of messages per second, of all tasks together; 0: no limit."""
    max_gap_s: float | None = None
    loop: int = 1
    id: str = ""
    """Empty: independent of everything that was replayed before."""
    again: bool = False
    """Whether to send also what is marked as replayed."""

    def check(self) -> None:
        """Raises InvalidOption or ContradictoryOptions if the plan is not valid."""
        for name, text in (
            ("--to", self.to.pattern + self.to.replacement), ("--where", self.where or ""),
            ("--id", self.id),
        ):  # fmt: skip
            check_text(name, text)
        if self.max_gap_s is not None and not self.speed:
            why = "pauses are kept, and can be cut, only with --speed"
            raise ContradictoryOptions(("--max-gap", "--speed"), why)
        if self.from_us is not None and self.until_us is not None and self.from_us >= self.until_us:
            raise ContradictoryOptions(("--from", "--until"), "the end is not after the start")
        if not 1 / SAMPLE_MODULUS <= self.sample <= 1:
            raise InvalidOption(
                "--sample", self.sample, f"a share from {1 / SAMPLE_MODULUS:f} to 1"
            )
        if not 1 <= self.loop <= LOOPS_MAX:
            raise InvalidOption("--loop", self.loop, f"a number from 1 to {LOOPS_MAX}")

    def source_options(self, slots: int) -> dict[str, str]:
        """Return options of `mesh-capture`: each queue is read by one task from beginning to end, and a task's queues
        in the order in which all their messages were stored, so that what is paced can be sent as it is read."""
        options = {
            "path": self.directory, "vhost": self.vhost, "includeHeaders": "true",
            "ordering": "queue", "minPartitions": str(slots), "maxPartitionBytes": UNLIMITED_BYTES,
        }  # fmt: skip
        if self.queues:
            options["queues"] = json.dumps(self.queues)
        if self.streams:
            options["streams"] = json.dumps(self.streams)
        if self.topic is not None:
            options["subscribe"] = json.dumps([self.topic])
        for name, at_us in (
            ("startingTimestamp", self.from_us),
            ("endingTimestamp", self.until_us),
        ):
            if at_us is not None:
                options[name] = iso(at_us)
        return options

    def columns(self) -> tuple[str, ...]:
        """Return the columns of a row that the sink needs."""
        where = ("queue", "partition", "offset") if self.to.kind == QUEUES else ("queue", "topic")
        return *where, "value", "headers", *(("timestamp",) if self.speed else ())

    def sink_options(self, name: str, loop: int, tasks: int) -> dict[str, str]:
        """Return options of `mesh`, except those for the clock and for joining the mesh."""
        options = {
            "to": self.to.kind, "id": f"{name}/{self.digest()}/{loop}",
            "replay": "true", "replays": "send" if self.again else "skip",
        }  # fmt: skip
        if self.to.kind == QUEUES:
            options |= {"broker": self.to.broker, "numbering": "offsets"}
        if self.speed:
            options["speed"] = repr(self.speed)
        if self.rate:
            options["ratePerTask"] = repr(self.rate / max(1, tasks))
        return options

    def digest(self) -> str:
        """Return a digest of what selects rows: another selection under the same id is another replay."""
        chosen = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("directory", "speed", "rate", "max_gap_s", "loop", "id", "until_us")
        }
        return hashlib.blake2b(json.dumps(chosen).encode(), digest_size=6).hexdigest()

    def sample_sql(self) -> str | None:
        """Return a condition that selects the share, always the same rows; None: all rows."""
        if self.sample >= 1.0:
            return None
        kept = round(self.sample * SAMPLE_MODULUS)
        return f"pmod(xxhash64(queue, partition, offset), {SAMPLE_MODULUS}) < {kept}"


def read_destination(text: str) -> Destination:
    """Parse a destination: `broker2`; `s/^orders/replayed/`; `replayed.>`, which is put before every topic; `>`,
    which keeps topics. Raises InvalidOption."""
    if text.startswith("s/"):
        parts = re.split(r"(?<!\\)/", text)
        if len(parts) == 4 and parts[1] and not parts[3]:
            return _renaming_destination(text, *(part.replace("\\/", "/") for part in parts[1:3]))
        raise InvalidOption("--to", text, "s/PATTERN/REPLACEMENT/")
    try:
        if text == ">" or text.endswith(".>"):
            check_pattern(text)
            prefix = text.removesuffix(">")
            if "*" not in prefix:
                return Destination(TOPICS, "", "^" if prefix else "", _literal(prefix))
        else:
            return Destination(QUEUES, check_cluster(text))
    except InvalidName:
        pass
    allowed = "a broker's cluster, or topics: > (unchanged), replayed.>, s/^orders/replayed/"
    raise InvalidOption("--to", text, allowed)


def _renaming_destination(text: str, pattern: str, replacement: str) -> Destination:
    """Return the destination of an `s/.../.../`. Raises InvalidOption, as far as it can be checked without Java."""
    groups = check_regex("--to", pattern).groups
    python_only = PYTHON_ONLY.search(pattern)
    if python_only is not None:
        allowed = f"a regular expression of Java, which does not know {python_only[1]}"
        raise InvalidOption("--to", text, allowed)
    if any(int(group or 0) > groups for group, _ in REPLACEMENT_TOKEN.findall(replacement)):
        raise InvalidOption("--to", text, f"no group above {groups}, the last one of the pattern")
    return Destination(TOPICS, "", pattern, _java_replacement(replacement))


def _java_replacement(replacement: str) -> str:
    """Convert from the form of `sed`, where \\1 is a group and everything else is literal."""
    found, after_group = [], False
    for group, plain in REPLACEMENT_TOKEN.findall(replacement):
        # An unescaped digit after a group would be read as part of the group's number.
        shown = "\\" + plain if after_group and plain.isdigit() else _literal(plain)
        found.append(f"${group}" if group else shown)
        after_group = bool(group)
    return "".join(found)


def _literal(text: str) -> str:
    """Escape what Java would take for a group in a replacement."""
    return re.sub(r"([\\$])", r"\\\1", text)


def read_duration(name: str, text: str) -> float:
    """Return seconds, from 5s, 200ms, 2m, 1h or a number of seconds. Raises InvalidOption."""
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    seconds = float(matched[1]) * UNITS_S[matched[2] or "s"] if matched else 0.0
    if not 0.001 <= seconds < 1e9:
        raise InvalidOption(name, text, "a time such as 5s, 200ms or 2m, at least 1ms")
    return seconds


def read_number(name: str, text: str, most: float) -> float:
    """Return a number above 0, up to `most`. Raises InvalidOption."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= most:  # Refuses NaN, too.
        raise InvalidOption(name, text, f"a number, more than 0 and at most {most:g}")
    return found
