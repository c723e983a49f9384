"""The findings of recovery as text and as JSON, alike for a starting broker and for a command that only looks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import RecordDamaged
from ..log.encryption import is_encrypted
from ..log.report import Damage, LogGap, RecoveryReport, TornTail


def summary(report: RecoveryReport) -> str:
    """Return how much was read, and how fast."""
    encrypted = "; encrypting" if report.encrypted else ""
    if report.formatted:
        return f"a new store{encrypted}"
    return (
        f"{report.records} records in {report.segments} segments, log positions {report.start} to "
        f"{report.end - 1}; {report.bytes_read} bytes read in {report.seconds:.3f} s "
        f"({rate(report):.0f} MB/s){encrypted}"
    )


def rate(report: RecoveryReport) -> float:
    """Return MB/s."""
    return report.bytes_read / report.seconds / 1e6 if report.seconds else 0.0


def findings(report: RecoveryReport, *, read_only: bool = False) -> list[str]:
    """Return a line for everything that is not as it was written; none if all is well."""
    lines = [_gap(one) for one in report.gaps]
    lines += [_damage(one, read_only) for one in report.damage]
    if report.torn is not None:
        lines.append(_torn(report.torn, read_only))
    return lines


def _gap(gap: LogGap) -> str:
    if gap.end == gap.start:
        return (
            f"the chain is broken before log position {gap.start}: a record before it was replaced"
        )
    known = "they had been confirmed" if gap.synced else "they may never have been confirmed"
    return (
        f"lost: log positions {gap.start} to {gap.end - 1}, {gap.end - gap.start} records; {known}"
    )


def _damage(one: Damage, read_only: bool) -> str:
    kept = "" if read_only else f", copied to {one.kept_as}" if one.kept_as else ", not copied"
    return f"damaged: bytes {one.at} to {one.end} of segment {one.segment}{kept}"


def _torn(torn: TornTail, read_only: bool) -> str:
    """Describe a torn tail, usually the remains of a commit that a crash cut off."""
    where = f"segment {torn.segment}, log position {torn.position}"
    if not torn.size_bytes and not torn.missing_bytes:
        return f"torn: {where}: empty, although the previous segment is complete"
    did = "a broker would cut off" if read_only else "cut off"
    kept = f", copied to {torn.kept_as}" if torn.kept_as and not read_only else ""
    missing = f"; {torn.missing_bytes} bytes of the file are missing" if torn.missing_bytes else ""
    return (
        f"torn tail at {where}: {did} {torn.size_bytes} bytes from byte {torn.at} on{kept}{missing}"
    )


def invalid_records(damaged: list[RecordDamaged], unknown_kinds: int) -> list[str]:
    """Return lines for records that are intact but have no valid meaning."""
    lines = [f"invalid: {one.what} at log position {one.position}" for one in damaged]
    if unknown_kinds:
        lines.append(f"{unknown_kinds} records of kinds unknown to this release: use a later one")
    return lines


def as_json(report: RecoveryReport, *, read_only_path: Path | None = None) -> dict[str, Any]:
    """Return every field of the report as plain values.

    Args:
        read_only_path: the log's directory, if it was only read. Then no copies of damage were made, so none is
            named, and `encrypted` says whether there is a data key, because nothing was going to be written.
    """
    fields = asdict(report)
    fields["store_id"] = report.store_id.hex()
    fields["megabytes_per_s"] = round(rate(report), 1)
    if read_only_path is not None:
        fields["encrypted"] = is_encrypted(read_only_path)
        for one in (*fields["damage"], *filter(None, [fields["torn"]])):
            one["kept_as"] = None
    return fields
