"""docs/guide.md says nothing stops while keys are rotated: each step of it, on real nodes.

A node that was restarted calls one that was not, its seed. The other way round is not promised while
the old generation is being replaced: a seed's first port speaks the new one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import mesh
from security.files import (
    drop_old_cluster,
    drop_old_network,
    new_cluster,
    new_network,
    rotate_cluster,
    rotate_network,
)
from tests.nodes import linked, node

KEYS_S = 40
"""Keys that may open a seed are tried one by one, every 5 s."""


def service() -> mesh.Service:
    made = mesh.Service("databases")

    @made.request
    async def echo(request: mesh.Request) -> bytes:
        return request.payload

    return made


def copy(source: Path, target: Path, *names: str) -> Path:
    target.mkdir(exist_ok=True)
    for name in names:
        shutil.copy2(source / name, target / name)
    return target


@pytest.mark.parametrize("first", ["databases", "shop"])
async def test_a_network_secret(tmp_path: Path, first: str) -> None:
    """`first` is restarted first: with both generations, later with the new one alone."""
    master = tmp_path / "network.secret"
    new_network(master)
    before, both = tmp_path / "before", tmp_path / "both"
    shutil.copy2(master, before)
    rotate_network(master)
    shutil.copy2(master, both)
    drop_old_network(master)
    for seed, restarted in ((before, both), (both, both), (both, master), (master, both)):
        settings = [{"network_secret_file": file} for file in (seed, restarted)]
        await they_talk(first, settings[0], settings[1])


@pytest.mark.parametrize("first", ["databases", "shop"])
async def test_the_keys_of_a_cluster(tmp_path: Path, first: str) -> None:
    """As above; members hold the secret halves, callers only the public ones."""
    master = tmp_path / "master"
    new_cluster(master, "databases")
    new_cluster(master, "shop")
    steps: list[dict[str, Path]] = []
    for step in ("before", "both", "after"):
        if step == "both":
            rotate_cluster(master, "databases")
        elif step == "after":
            drop_old_cluster(master, "databases")
        stems = ["databases", "databases.old"] if step == "both" else ["databases"]
        secrets, publics = ([f"{stem}.{half}" for stem in stems] for half in ("secret", "public"))
        steps.append({
            "databases": copy(master, tmp_path / f"db-{step}", "shop.public", *secrets),
            "shop": copy(master, tmp_path / f"shop-{step}", "shop.secret", *publics),
        })  # fmt: skip
    before, both, after = steps
    other = "databases" if first == "shop" else "shop"
    for seed, restarted in ((before, both), (after, both)):
        await they_talk(first, {"keys_dir": seed[other]}, {"keys_dir": restarted[first]})


async def they_talk(first: str, seed: dict[str, Path], restarted: dict[str, Path]) -> None:
    """A node of `first` finds its seed, of the other cluster, and a request gets its reply."""
    clusters: tuple[mesh.Service | str, mesh.Service | str] = ("shop", service())
    if first == "shop":
        clusters = service(), "shop"
    none: dict[str, Any] = {"network_secret": None}
    async with (
        node(clusters[0], **{**none, **seed}) as one,
        node(clusters[1], one, **{**none, **restarted}) as other,
    ):
        await linked(other, one, patience_s=KEYS_S)
        caller = other if first == "shop" else one
        assert await caller.request("databases", b"x") == b"x"
