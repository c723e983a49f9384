"""How what is entered with `async with` says so to who enters it otherwise."""

from __future__ import annotations

from typing import Any

import pytest


async def only_async_with(call: str, block: Any) -> None:
    """`call` is what the user wrote, such as `node.subscribe`; the errors have it in their text."""
    meant = rf"^want `async with {call}\(\.\.\.\) as \w+`, got "
    with pytest.raises(TypeError, match=meant + "`await`"):
        await block
    with pytest.raises(TypeError, match=meant + "`with`"), block:
        raise AssertionError("entered")
