from __future__ import annotations

from pathlib import Path

import pytest

from tests.offline import Offline


@pytest.fixture
def directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Offline:
    """A broker's directory, which commands that need no broker find by a relative path."""
    monkeypatch.chdir(tmp_path)
    return Offline(tmp_path, capsys)
