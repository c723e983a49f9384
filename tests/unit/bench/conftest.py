"""A server for all cases of a module that can share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Servers


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()
