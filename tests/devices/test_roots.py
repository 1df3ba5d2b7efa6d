"""Whole machines. Each file of tests/roots has a tree and what a scan finds in it, checked by hand.

Facts that a GPU does not list are those of the first GPU, so that a file shows the differences.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import scan
from claimd_devices.gpu import Gpu, Rules
from tests.devices.trees import Make

CASES = sorted((Path(__file__).parents[1] / "roots").glob("*.json"))


def plain(gpu: Gpu, key: str) -> Any:
    """Returns an attribute in the form of the case files."""
    if key == "nodes":
        return [f"{node.path} {node.major}:{node.minor}" for node in gpu.nodes]
    if key == "environment":
        return [f"{name}={value}" for name, value in gpu.environment]
    if key == "counters":
        return [list(counter) for counter in gpu.counters]
    if key in ("vendor_id", "device_id"):
        return f"0x{getattr(gpu, key):04x}"
    value = getattr(gpu, key)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_machine(make_tree: Make, path: Path) -> None:
    case = json.loads(path.read_text())
    inventory = scan.scan(
        make_tree(*case["tree"]).roots, Rules(vfio=case.get("vfio", False)), with_link_now=True
    )
    assert [gpu.name for gpu in inventory.gpus] == [expected["name"] for expected in case["gpus"]]
    for gpu, said in zip(inventory.gpus, case["gpus"], strict=True):
        expected = case["gpus"][0] | said
        assert {key: plain(gpu, key) for key in expected} == expected
    assert {skipped.address: skipped.reason for skipped in inventory.skipped} == case["skipped"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 20
