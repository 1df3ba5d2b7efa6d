"""What NVIDIA's library says about the health of GPUs and instances; a broken library does no harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from claimd_devices import monitor, nvml_health
from claimd_devices.health import DEGRADED, FAILED, NVML
from tests.devices.trees import Make, Tree
from tests.support import nvml_stub

WHOLE = "gpu-0000-11-00-0"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def stub(tree: Tree, told: str, **options: Any) -> None:
    """Builds a library. `told` has the numbers of struct health in the stub."""
    nvml_stub.build(nvml_stub.place_in(tree.folder), f"HEALTH={told}", **options)


def seen(tree: Tree, **options: Any) -> dict[str, list[tuple[str, str, str]]]:
    """Returns kind, severity and value of what the library adds, by device."""
    reader = nvml_health.Reader(tree.roots, waits=True, **options)
    found = {}
    for name, symptoms in reader.read_gpus(tree.roots, tree.scan().gpus).items():
        found[name] = [
            (one.kind, one.severity, one.value or str(one.count or ""))
            for one in symptoms
            if one.source == NVML
        ]
    return found


#             pending, failed, errors, of an instance, recovery, state and status of the fabric
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("0, 0, 0, 0, 0, 0, 0", [("ecc", DEGRADED, "")]),
        ("1, 0, 0, 0, 0, 0, 0", [("row-remap", DEGRADED, ""), ("ecc", DEGRADED, "")]),
        ("1, 1, 5, 0, 0, 3, 0", [("row-remap", FAILED, ""), ("ecc", DEGRADED, "5")]),
        ("0, 0, 0, 0, 1, 0, 0", [("ecc", DEGRADED, ""), ("recovery", FAILED, "1")]),
        ("0, 0, 0, 0, 2, 0, 0", [("ecc", DEGRADED, ""), ("recovery", FAILED, "2")]),
        ("0, 0, 0, 0, 3, 0, 0", [("ecc", DEGRADED, ""), ("recovery", DEGRADED, "3")]),
        ("0, 0, 0, 0, 9, 0, 0", [("ecc", DEGRADED, ""), ("recovery", FAILED, "9")]),
        ("0, 0, 0, 0, 0, 1, 0", [("ecc", DEGRADED, ""), ("fabric", FAILED, "")]),
        ("0, 0, 0, 0, 0, 2, 0", [("ecc", DEGRADED, ""), ("fabric", FAILED, "")]),
        ("0, 0, 0, 0, 0, 3, 9", [("ecc", DEGRADED, ""), ("fabric", FAILED, "")]),
    ],
)
def test_what_it_says_of_a_gpu(
    make_tree: Make, told: str, expected: list[tuple[str, str, str]]
) -> None:
    tree = make_tree("nvidia:h100")
    stub(tree, told, mig_on=0)
    assert seen(tree) == {WHOLE: expected}


def test_an_instance_has_its_own_errors_and_what_its_gpu_needs(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree, "1, 0, 7, 2, 1, 0, 0")
    instance = tree.scan().gpus[1].name
    assert seen(tree) == {
        WHOLE: [("row-remap", DEGRADED, ""), ("ecc", DEGRADED, "7"), ("recovery", FAILED, "1")],
        instance: [("row-remap", DEGRADED, ""), ("recovery", FAILED, "1"), ("ecc", DEGRADED, "2")],
    }


def test_an_instance_that_the_library_does_not_describe_has_what_its_gpu_has(
    make_tree: Make,
) -> None:
    tree = make_tree("nvidia:a100,mig=1")
    stub(tree, "0, 1, 0, 0, 0, 0, 0", parts="")
    instance = tree.scan().gpus[1].name
    assert ("row-remap", FAILED, "") in seen(tree)[instance]


def test_an_older_library_says_less(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    nvml_stub.build(nvml_stub.place_in(tree.folder), mig_on=0)
    assert seen(tree) == {WHOLE: []}


@pytest.mark.parametrize("where", ["hangs_in", "crashes_in"])
def test_a_library_that_misbehaves_says_nothing(make_tree: Make, where: str) -> None:
    tree = make_tree("nvidia:h100")
    stub(tree, "1, 1, 1, 1, 1, 1, 1", **{where: "init"})
    assert seen(tree, seconds=0.3) == {WHOLE: []}


def test_a_gpu_that_sleeps_is_not_asked_about(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    stub(tree, "0, 1, 0, 0, 0, 0, 0", mig_on=0)
    tree.put(f"sys/bus/pci/devices/{tree.scan().gpus[0].address}/power/runtime_status", "suspended")
    assert seen(tree) == {WHOLE: []}


def test_a_look_does_not_wait_for_the_library_and_a_later_one_has_its_answer(
    make_tree: Make,
) -> None:
    tree, clock = make_tree("nvidia:h100"), Clock()
    stub(tree, "0, 1, 0, 0, 0, 0, 0", mig_on=0)
    reader = nvml_health.Reader(tree.roots, clock=clock)
    gpus = tree.scan().gpus

    def kinds() -> list[str]:
        shown = reader.read_gpus(tree.roots, gpus)[WHOLE]
        return [one.kind for one in shown if one.source == NVML]

    assert kinds() == []
    assert reader._question is not None
    reader._question.output(10.0)
    assert kinds() == ["row-remap", "ecc"]

    # An answer holds until the next one, and while the library does not answer.
    stub(tree, "0, 0, 0, 0, 0, 0, 0", mig_on=0, hangs_in="init")
    clock.now = nvml_health.EVERY
    assert kinds() == ["row-remap", "ecc"]
    clock.now += nvml_health.SECONDS
    assert kinds() == ["row-remap", "ecc"]
    assert reader._question is None


async def test_what_the_driver_takes_back_is_over(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    stub(tree, "0, 0, 0, 0, 1, 0, 0", mig_on=0)
    reader = nvml_health.Reader(tree.roots, waits=True, every=0.0)
    watched = monitor.Monitor(
        tree.roots, grace=300.0, interval=20.0, read_symptoms=reader.read_gpus
    )
    watched.on_inventory(tree.scan())
    await watched.check()
    (finding,) = watched.last.findings_of(WHOLE)
    assert finding.text == "the NVIDIA driver says what the GPU needs: reset the GPU [NVML]"

    stub(tree, "0, 0, 0, 0, 0, 0, 0", mig_on=0)
    await watched.check()
    assert watched.last.findings_of(WHOLE) == ()
