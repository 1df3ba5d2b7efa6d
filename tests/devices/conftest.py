from __future__ import annotations

from pathlib import Path

import pytest

from devices import fake
from tests.devices.trees import Make, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Make:
    """`tree("nvidia:h100=2", "amd:mi210")` writes one."""

    def write(*words: str) -> Tree:
        fake.write(tmp_path / "tree", fake.parse(words))
        return Tree(tmp_path / "tree")

    return write
