"""Making the directory of a vhost, cut off anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable.broker import directory
from durable.broker.directory import make_vhost, vhost_path, vhosts


class Killed(BaseException):
    pass


@pytest.mark.parametrize("synced_before", range(3))
def test_a_vhost_whose_making_was_cut_off_is_made_stable_by_the_next_start(
    synced_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: its name was there, so nothing was synced, and a power cut could take all that it confirmed."""
    synced: list[Path] = []

    def sync(path: Path) -> None:
        if len(synced) == synced_before:
            raise Killed
        synced.append(path)

    monkeypatch.setattr(directory, "_sync", sync)
    with pytest.raises(Killed):
        make_vhost(tmp_path, "shop")
    assert vhosts(tmp_path) == ["shop"]
    monkeypatch.setattr(directory, "_sync", synced.append)
    del synced[:]
    make_vhost(tmp_path, "shop")
    path = vhost_path(tmp_path, "shop")
    assert set(synced) == {path, path.parent, tmp_path}
