"""What `connect` wants."""

from __future__ import annotations

from typing import Any

import pytest

import durable
import mesh


@pytest.mark.parametrize("node", ["shop", None, mesh.join("shop")])
def test_who_has_not_joined_is_told_how(node: Any) -> None:
    with pytest.raises(TypeError, match=r"node: want a node from .async with mesh\.join"):
        durable.connect(node)
