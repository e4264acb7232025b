"""Tests here run with nodes that refuse to be written, but those of deep graphs: it is slow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinycore.uop.guard import guarded_nodes


@pytest.fixture(autouse=True)
def immutable_nodes(request: pytest.FixtureRequest) -> Iterator[None]:
    name = request.node.name
    if "100_000" in name or "deep" in name:
        yield
        return
    with guarded_nodes():
        yield
