"""A GPU that does not answer on the bus any more, also while it sleeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import monitor, symptoms
from claimd_devices.health import HealthReport, HealthState
from tests.devices.trees import Make, Tree

ADDRESS, NAME = "0000:11:00.0", "gpu-0000-11-00-0"
ONES = b"\xff" * 64


@pytest.fixture
def tree(make_tree: Make) -> Tree:
    return make_tree("nvidia:l4=2")


@pytest.fixture
def config(tree: Tree) -> Path:
    return tree.function(ADDRESS) / "config"


def fall_asleep(tree: Tree) -> None:
    tree.put(f"{tree.function(ADDRESS)}/power/runtime_status", "suspended\n")


def kinds(report: HealthReport) -> list[str]:
    return [finding.kind for finding in report.findings_of(NAME)]


async def test_it_is_lost_until_it_answers_whether_it_sleeps_or_not(
    tree: Tree, config: Path
) -> None:
    before = config.read_bytes()
    watched = monitor.Monitor(tree.roots, grace=300, interval=3600)
    watched.on_inventory(tree.scan())
    config.write_bytes(ONES)
    assert kinds(await watched.check()) == ["lost"]

    fall_asleep(tree)
    for _ in range(3):
        assert kinds(await watched.check()) == ["lost"]
    config.write_bytes(before)
    assert kinds(await watched.check()) == ["lost"]
    assert kinds(await watched.check()) == []


async def test_one_that_sleeps_and_was_well_is_not_looked_at(tree: Tree, config: Path) -> None:
    fall_asleep(tree)
    config.write_bytes(ONES)
    watched = monitor.Monitor(tree.roots, grace=300, interval=3600)
    watched.on_inventory(tree.scan())
    for _ in range(3):
        assert await watched.check() == HealthReport()


async def test_the_next_process_and_commands_know_it(tree: Tree, config: Path) -> None:
    watched = monitor.Monitor(tree.roots, grace=300, interval=3600)
    watched.on_inventory(tree.scan())
    before = config.read_bytes()
    config.write_bytes(ONES)
    await watched.check()
    fall_asleep(tree)
    state = watched.state

    assert kinds(monitor.check_once(tree.roots, tree.scan(), state)) == ["lost"]
    assert kinds(monitor.check_once(tree.roots, tree.scan(), HealthState())) == []
    later = monitor.Monitor(tree.roots, grace=300, interval=3600)
    later.restore(state)
    later.on_inventory(tree.scan())
    for _ in range(3):
        assert kinds(await later.check()) == ["lost"]

    config.write_bytes(before)
    assert kinds(monitor.check_once(tree.roots, tree.scan(), state)) == []
    await later.check()
    assert kinds(await later.check()) == []


def test_other_symptoms_of_a_lost_gpu_stay(tree: Tree, config: Path) -> None:
    config.write_bytes(ONES)
    own = symptoms.Symptom(kind="fabric", severity="failed", sentence="of the library")
    gpus = tree.scan().gpus

    def read(*_: object) -> dict[str, tuple[symptoms.Symptom, ...]]:
        return {NAME: (own,)}

    shown = monitor._read_with_lost(tree.roots, gpus, gpus, read)
    assert [symptom.kind for symptom in shown[NAME]] == ["lost", "fabric"]
