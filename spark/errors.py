"""All errors of the Spark tier in one tree; the text of each is one line.

CaptureError (DurableError)
├── OptionError               (ValueError) abstract: the options are invalid
│   ├── UnknownOption         there is no such option; `nearest` is a similar one
│   ├── InvalidOption         an option has a value that it cannot have
│   ├── ContradictoryOptions  two options exclude each other
│   └── UnknownColumn         the requested schema has a column that does not exist
├── NoCapture                 there is no broker's directory, or nothing in it
├── NothingSelected           there is no queue or stream of these names
├── KeysUnusable              the log is encrypted, and the configured keys cannot be used
├── DataLost                  data to be read is gone: retention, compaction, another store
├── CaptureDamaged            records with a wrong checksum
│   └── CaptureCut            records are missing because their segment was cut
├── SegmentUnreadable         the disk does not return a segment, or it is not a file
├── ExportFailed              what was read could not be written
├── SparkMissing              a package of the extra `spark` is not installed; says what to install
└── JavaMissing               Spark needs Java 17 or later; says what to install

Directories that hold something else raise ForeignStore, later formats NewerFormat, encrypted logs without
a key StoreKeyMissing, and with a wrong one StoreKeyWrong, all of durable/errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from durable.errors import DurableError, nearest, shown

JAVA_PACKAGE = "openjdk-17-jre-headless"
JAVA_MIN = 17
OUR_PACKAGES = "spark|durable|mesh|security|discovery"
"""Packages whose errors may be quoted inside Spark's errors."""


def printable_path(path: str) -> str:
    """Return the path, quoted with escapes if it would not print as one readable line."""
    return path if path.isprintable() else repr(path)


class CaptureError(DurableError):
    """Root of all errors of the Spark tier."""


class OptionError(CaptureError, ValueError):
    """Abstract: the options of a query are invalid."""


class UnknownOption(OptionError):
    """There is no option `name`; `nearest` is a similar one, or empty."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        by_lower = {one.lower(): one for one in known}
        self.name, self.nearest = name, by_lower.get(nearest(name.lower(), by_lower), "")
        hint = (
            f"did you mean {self.nearest}?"
            if self.nearest
            else f"the options are {', '.join(known)}"
        )
        super().__init__(f"no option {shown(name)}: {hint}")


class InvalidOption(OptionError):
    """Option `name` has the invalid value `value`; the text says what is `allowed`."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name} is {shown(value)}: want {allowed}")
        self.name, self.value, self.allowed = name, value, allowed


class ContradictoryOptions(OptionError):
    """The options `names` exclude each other: `why`."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        super().__init__(f"{' and '.join(names)}: {why}")
        self.names, self.why = tuple(names), why


class UnknownColumn(OptionError):
    """There is no column `name`, or none of this `type`; `type` is None if none was asked for."""

    def __init__(self, name: str, type: str | None, known: Iterable[str]) -> None:  # noqa: A002
        wanted = shown(name) if type is None else f"{shown(name)} {type}"
        super().__init__(f"mesh-capture has no column {wanted}: it has {', '.join(known)}")
        self.name, self.type = name, type


class NoCapture(CaptureError):
    """`path` is not a broker's directory in which anything was stored: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{printable_path(path)}: {why}")
        self.path, self.why = path, why


class NothingSelected(CaptureError):
    """A `kind` (queue, stream or both) `name` was asked for and does not exist; `nearest` is similar, or empty."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.nearest = kind, name, nearest(name, known)
        hint = f": did you mean {self.nearest!r}?" if self.nearest else ""
        super().__init__(f"no {kind} {shown(name)} has messages in this log{hint}")


class KeysUnusable(CaptureError):
    """The log in `path` is encrypted, and the configured keys cannot be used: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"no usable keys for {printable_path(path)}, which is encrypted: {why}")
        self.path, self.why = path, why


class DataLost(CaptureError):
    """Data to be read is gone: `what`. The text ends with `advice`: how to read the rest."""

    def __init__(
        self, what: str,
        advice: str = "to read what is left, set failOnDataLoss=false, or run `mesh capture` or "
        "`mesh replay` again",
    ) -> None:  # fmt: skip
        super().__init__(f"{what}; {advice}")
        self.what = what


class CaptureDamaged(CaptureError):
    """`size_bytes` from byte `at` of `segment` are not valid records."""

    def __init__(self, segment: str, at: int, size_bytes: int) -> None:
        super().__init__(
            self._what(segment, at, size_bytes)
            + ": `mesh-broker verify` tells more; to read the rest, set damaged=skip, "
            "or give `mesh capture` --skip-damaged"
        )
        self.segment, self.at, self.size_bytes = segment, at, size_bytes

    def _what(self, segment: str, at: int, size_bytes: int) -> str:
        return f"{printable_path(segment)}: {size_bytes} bytes at {at} are damaged"


class CaptureCut(CaptureDamaged):
    """Log positions [`start`, `end`) should be in `segment` from byte `at` on, and are missing."""

    def __init__(self, segment: str, at: int, start: int, end: int) -> None:
        self.start, self.end = start, end
        super().__init__(segment, at, 0)

    def _what(self, segment: str, at: int, size_bytes: int) -> str:
        missing = f"log positions {self.start} to {self.end - 1} are missing at byte {at}, the file was cut off"
        return f"{printable_path(segment)}: {missing}"


class SegmentUnreadable(CaptureError):
    """The disk does not return what is in `segment`, or that is not a file: `why`."""

    def __init__(self, segment: str, why: str) -> None:
        super().__init__(
            f"{printable_path(segment)}: {why}; `mesh-broker salvage` copies what can be read"
        )
        self.segment, self.why = segment, why


class ExportFailed(CaptureError):
    """What was read could not be written to `path`: `why`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{printable_path(path)}: {why}")
        self.path, self.why = path, why


class SparkMissing(CaptureError):
    """The package `missing` could not be imported."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"{missing} is not installed: pip install '.[spark]' in the project's clone, "
            f"and apt-get install {JAVA_PACKAGE} if there is no Java {JAVA_MIN}"
        )
        self.missing = missing


class JavaMissing(CaptureError):
    """Spark needs Java 17 or later; `found` says what there is."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_MIN} or later, found {found}: apt-get install {JAVA_PACKAGE}"
        )
        self.found = found


def said(error: BaseException) -> str | None:
    """Return the text of one of our errors that Spark quotes inside its own, between two stack traces.

    None if it contains none of ours.
    """
    if isinstance(error, DurableError):
        return str(error)
    found = re.findall(
        rf"^(?:{OUR_PACKAGES})\.[\w.]*errors\.[\w.]*\w+: (.+)$", str(error), re.MULTILINE
    )
    return found[-1] if found else None
