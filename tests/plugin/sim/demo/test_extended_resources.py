"""Pods with the vendors' extended resources, as a story on real `claimd run` processes.

The classes come from the components. Each container gets its own devices, and explain names pods
that cannot be satisfied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.told_story import tell

COMPONENTS = Path(__file__).parents[4] / "deploy/components"
PRINT = "env | grep CLAIMD_ | sort; exec sleep 600"


def classes() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for vendor in ("nvidia", "amd", "intel"):
        text = (COMPONENTS / f"{vendor}-resources/deviceclasses.yaml").read_text()
        documents += yaml.safe_load_all(text)
    return documents


def container(name: str, limits: dict[str, str], command: str = PRINT) -> dict[str, Any]:
    resources = {"limits": limits, "requests": limits}
    words = ["sh", "-c", command]
    return {"name": name, "image": "any", "command": words, "resources": resources}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": list(containers), **spec},
    }


def runs(name: str) -> dict[str, Any]:
    return {"wait": f"pod/{name}", "until": {"status.phase": "Running"}}


def wait_for_slice(node: str, count: int) -> dict[str, Any]:
    return {
        "wait": "resourceslice",
        "where": {"spec.nodeName": node},
        "until": {"spec.devices[*]": {"count": count}},
    }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_names_of_the_device_plugins(tmp_path: Path) -> None:
    """One GPU of each vendor, two at once, and a partition by its profile."""
    nodes = [
        {"name": "one", "gpus": ["nvidia:h100", "amd:mi300x=2", "intel:max1550"]},
        {"name": "two", "gpus": ["nvidia:a100,mig=3g.40gb:1g.10gb", "intel:b580"]},
    ]
    wanted = {
        "nvidia": {"nvidia.com/gpu": "1"},
        "amd": {"amd.com/gpu": "2"},
        "i915": {"gpu.intel.com/i915": "1"},
        "xe": {"gpu.intel.com/xe": "1"},
        "mig": {"nvidia.com/mig-1g.10gb": "1"},
    }
    pods = [pod(name, container("main", limits)) for name, limits in wanted.items()]
    too_many = pod("greedy", container("main", {"amd.com/gpu": "3"}))
    tell(
        tmp_path,
        nodes,
        wait_for_slice("one", 4),
        wait_for_slice("two", 4),
        {"apply": [*classes(), *pods, too_many]},
        *map(runs, wanted),
        {"logs": "mig", "contains": ["CLAIMD_GPU_", "_MIG_"]},
        {"wait": "pod/greedy", "until": {"status.conditions[type=PodScheduled].status": "False"}},
        {
            "run": "claimd explain pod/greedy",
            "exits": 3,
            "contains": ["3 GPUs are needed", "request container-0-request-0"],
        },
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_several_containers_and_one_that_runs_before_them(tmp_path: Path) -> None:
    """A later container reuses the GPU of an init container, so the pod takes four GPUs, not five.
    The init container succeeds if it got one."""
    ahead = container("ahead", {"nvidia.com/gpu": "1"}, "env | grep CLAIMD_")
    user = pod(
        "user",
        container("one", {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}),
        container("two", {"nvidia.com/gpu": "2"}),
        container("none", {}),
        initContainers=[ahead],
    )
    asked = "status.allocation.devices.results[*]"
    tell(
        tmp_path,
        [{"name": "one", "gpus": ["nvidia:h100=3", "amd:mi300x"]}],
        wait_for_slice("one", 4),
        {"apply": [*classes(), user]},
        runs("user"),
        {"wait": "resourceclaim", "until": {asked: {"count": 4}}},
    )
