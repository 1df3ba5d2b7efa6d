"""Whole machines: each file of tests/roots says of a tree what is found there. They are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devices.gpu import Gpu
from tests.devices.trees import Make

CASES = sorted((Path(__file__).parents[1] / "roots").glob("*.json"))


def plain(gpu: Gpu, key: str) -> Any:
    """An attribute in the words of the case files."""
    if key == "nodes":
        return [f"{node.path} {node.major}:{node.minor}" for node in gpu.nodes]
    if key == "environment":
        return [f"{name}={value}" for name, value in gpu.environment]
    value = getattr(gpu, key)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_machine(tree: Make, path: Path) -> None:
    case = json.loads(path.read_text())
    inventory = tree(*case["tree"]).scan()
    assert [gpu.name for gpu in inventory.gpus] == [expected["name"] for expected in case["gpus"]]
    for gpu, expected in zip(inventory.gpus, case["gpus"], strict=True):
        assert {key: plain(gpu, key) for key in expected} == expected
    assert {skipped.address: skipped.reason for skipped in inventory.skipped} == case["skipped"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 4
