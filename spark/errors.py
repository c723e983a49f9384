"""Every error of the Spark tier, in one tree; the text of each is one line.

CaptureError (DurableError)
├── OptionError               (ValueError) abstract: what was asked for makes no sense
│   ├── UnknownOption         there is no such option; `nearest` is one there is
│   ├── InvalidOption         an option has a value that it cannot have
│   ├── ContradictoryOptions  two of them cannot both be meant
│   └── UnknownColumn         the schema asked for has a column that there is not
├── NoCapture                 there is no broker's directory, or nothing in it
├── NothingSelected           no queue or stream of these names
├── KeysUnusable              the keys that are set, for a log that is encrypted, cannot be used
├── DataLost                  what was to be read is gone: retention, compaction, another store
├── CaptureDamaged            records whose checksum is wrong
│   └── CaptureCut            records that are not there: their segment was cut
├── ExportFailed              what was read could not be written
├── SparkMissing              a package of the extra `spark` is not installed; says what to install
└── JavaMissing               Spark needs Java 17 or later; says what to install

Directories that hold something else raise ForeignStore, later formats NewerFormat, encrypted logs without
a key or with another StoreKeyMissing and StoreKeyWrong, of durable/errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from durable.errors import DurableError, nearest, shown

JAVA_PACKAGE = "openjdk-17-jre-headless"
JAVA_MIN = 17
OURS = "spark|durable|mesh|security|discovery"
"""Packages whose errors stand inside Spark's."""


def in_a_line(path: str) -> str:
    """As it is, unless that would be two lines, or none that can be read."""
    return path if path.isprintable() else repr(path)


class CaptureError(DurableError):
    """Root of all errors of the Spark tier."""


class OptionError(CaptureError, ValueError):
    """Abstract: the options of a query make no sense."""


class UnknownOption(OptionError):
    """There is no option `name`; `nearest` is one there is, or empty."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        by_lower = {one.lower(): one for one in known}
        self.name, self.nearest = name, by_lower.get(nearest(name.lower(), by_lower), "")
        hint = f"did you mean {self.nearest}?" if self.nearest else f"there are {', '.join(known)}"
        super().__init__(f"no option {shown(name)}: {hint}")


class InvalidOption(OptionError):
    """Option `name` is `value`, which it cannot be; the text says what is `allowed`."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name} is {shown(value)}: want {allowed}")
        self.name, self.value, self.allowed = name, value, allowed


class ContradictoryOptions(OptionError):
    """The options `names` cannot all be meant: `why`."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        super().__init__(f"{' and '.join(names)}: {why}")
        self.names, self.why = tuple(names), why


class UnknownColumn(OptionError):
    """There is no column `name`, or not of this `type`, which is None where none was asked for."""

    def __init__(self, name: str, type: str | None, known: Iterable[str]) -> None:  # noqa: A002
        asked = shown(name) if type is None else f"{shown(name)} {type}"
        super().__init__(f"mesh-capture has no column {asked}: it has {', '.join(known)}")
        self.name, self.type = name, type


class NoCapture(CaptureError):
    """`path` is no broker's directory that anything was stored in: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{in_a_line(path)}: {why}")
        self.path, self.why = path, why


class NothingSelected(CaptureError):
    """`kind` (queue, stream or both) `name` was asked for and is not there; `nearest` is, or is empty."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.nearest = kind, name, nearest(name, known)
        hint = f": did you mean {self.nearest!r}?" if self.nearest else ""
        super().__init__(f"no {kind} {shown(name)} has its messages in this log{hint}")


class KeysUnusable(CaptureError):
    """The encrypted log in `path` wants keys, and those that are set cannot be used: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"keys for {in_a_line(path)}, which is encrypted: {why}")
        self.path, self.why = path, why


class DataLost(CaptureError):
    """Something that was to be read is gone: `what`; how what is left is read: `advice`."""

    def __init__(
        self, what: str,
        advice: str = "with failOnDataLoss=false, or by `mesh capture` or `mesh replay` when they are run "
        "again, what is left is read",
    ) -> None:  # fmt: skip
        super().__init__(f"{what}; {advice}")
        self.what = what


class CaptureDamaged(CaptureError):
    """`size_bytes` from byte `at` of `segment` are no valid records."""

    def __init__(self, segment: str, at: int, size_bytes: int) -> None:
        super().__init__(
            self._what(segment, at, size_bytes)
            + ": `mesh-broker verify` tells more; with damaged=skip, "
            "of `mesh capture` --skip-damaged, the rest is read"
        )
        self.segment, self.at, self.size_bytes = segment, at, size_bytes

    def _what(self, segment: str, at: int, size_bytes: int) -> str:
        return f"{in_a_line(segment)}: {size_bytes} bytes at {at} are damaged"


class CaptureCut(CaptureDamaged):
    """Log positions [`start`, `end`) should stand in `segment` from byte `at` on, and do not."""

    def __init__(self, segment: str, at: int, start: int, end: int) -> None:
        self.start, self.end = start, end
        super().__init__(segment, at, 0)

    def _what(self, segment: str, at: int, size_bytes: int) -> str:
        missing = (
            f"log positions {self.start} to {self.end - 1} are missing at byte {at}, it was cut"
        )
        return f"{in_a_line(segment)}: {missing}"


class ExportFailed(CaptureError):
    """What was read could not be written to `path`: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{in_a_line(path)}: {why}")
        self.path, self.why = path, why


class SparkMissing(CaptureError):
    """`missing` is the package that could not be imported."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"{missing} is not installed: pip install '.[spark]' in the project's clone, "
            f"and apt-get install {JAVA_PACKAGE} where there is no Java {JAVA_MIN}"
        )
        self.missing = missing


class JavaMissing(CaptureError):
    """Spark runs on Java 17 or later, and `found` is what there is."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_MIN} or later, there is {found}: apt-get install {JAVA_PACKAGE}"
        )
        self.found = found


def said(error: BaseException) -> str | None:
    """What one of our errors said that Spark shows inside its own, with two stacks around it.

    None: there is none of ours in it.
    """
    if isinstance(error, DurableError):
        return str(error)
    found = re.findall(rf"^(?:{OURS})\.[\w.]*errors\.[\w.]*\w+: (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else None
