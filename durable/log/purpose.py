"""What an append is for, by the kinds of its drafts. On a full disk some purposes may use more than others: placing.py."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from .record import Draft, Kind

ESSENTIAL = frozenset({Kind.ACKS, Kind.DEFINITIONS})


def is_essential(draft: Draft) -> bool:
    """Return whether it may use the reserve: whether it is of a kind that gives space back, and cannot wait."""
    return draft.kind in ESSENTIAL and not draft.patient


class Purpose(Enum):
    """What the drafts of one append are for. It decides which places they may use."""

    PUBLISH = auto()
    ESSENTIAL = auto()
    """Nothing but acks and definitions."""
    SNAPSHOT = auto()
    """With it may come its copy, which may use only the places of a publish."""
    DEAD_LETTERS = auto()
    """Dead letters, which come with acks of the messages that they are copies of."""
    MOVED = auto()
    """Records carried forward by compaction."""


def purpose_of(drafts: Sequence[Draft]) -> Purpose:
    """Return the first purpose that fits, for all of them: drafts of one append share their places."""
    kinds = {draft.kind for draft in drafts}
    if Kind.MOVED in kinds:
        return Purpose.MOVED
    if any(draft.snapshot and is_essential(draft) for draft in drafts):
        return Purpose.SNAPSHOT
    if all(map(is_essential, drafts)):
        return Purpose.ESSENTIAL
    return Purpose.DEAD_LETTERS if Kind.ACKS in kinds else Purpose.PUBLISH
