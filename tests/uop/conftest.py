"""Every test here runs with nodes that refuse to be written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinycore.uop.guard import guarded_nodes


@pytest.fixture(autouse=True)
def immutable_nodes() -> Iterator[None]:
    with guarded_nodes():
        yield
