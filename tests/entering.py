"""Checks the errors for blocks that are entered other than by `async with`."""

from __future__ import annotations

from typing import Any

import pytest


async def only_async_with(call: str, block: Any) -> None:
    """Check that `await` and `with` raise a helpful TypeError. `call`: the user's words, such as `node.subscribe`."""
    meant = rf"^want `async with {call}\(\.\.\.\) as \w+`, got "
    with pytest.raises(TypeError, match=meant + "`await`"):
        await block
    with pytest.raises(TypeError, match=meant + "`with`"), block:
        raise AssertionError("entered")
