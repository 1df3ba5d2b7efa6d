from __future__ import annotations

import pytest

from claimd_devices.fake.screens import FakeScreens
from tests.devices.trees import Make


@pytest.mark.parametrize("name", [model.name for model in FakeScreens.models])
def test_a_scan_leaves_screens_alone(make_tree: Make, name: str) -> None:
    inventory = make_tree(name).scan()
    assert inventory.gpus == ()
    (skipped,) = inventory.skipped
    assert (skipped.address, skipped.expected) == ("0000:00:02.0", True)


def test_they_are_no_gpus_to_faults_either() -> None:
    assert [model.is_gpu for model in FakeScreens.models] == [False] * 5
    assert all("no GPU" in model.title for model in FakeScreens.models)
