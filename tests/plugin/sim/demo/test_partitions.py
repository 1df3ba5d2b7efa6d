"""Partitioned GPUs, as a story on real `claimd run` processes.

A request for a partition gets it, and no request gets the whole GPU meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import told_story

EXAMPLE = Path(__file__).parents[4] / "deploy/examples/mig-profiles"


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def pod(name: str, device_class: str, *expressions: str) -> list[dict[str, Any]]:
    exactly: dict[str, Any] = {"deviceClassName": device_class}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    container = {"name": "c", "image": "any", "command": ["sleep", "600"]}
    container["resources"] = {"claims": [{"name": "gpu"}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [container],
        },
    }
    return [claim, user]


def runs(name: str, device: str) -> list[dict[str, Any]]:
    allocated = {"status.allocation.devices.results[0].device": device}
    return [
        {"wait": f"resourceclaim/{name}", "until": allocated},
        {"wait": f"pod/{name}", "until": {"status.phase": "Running"}},
    ]


def tell(tmp_path: Path, gpus: str, count: int, *steps: dict[str, Any]) -> None:
    published = {
        "wait": "resourceslice",
        "until": {"spec.devices[*]": {"count": count}},
    }
    told_story.tell(tmp_path, [{"name": "one", "gpus": [gpus]}], published, *steps)


@pytest.mark.slow
def test_a_claim_for_1g_10gb_of_a_divided_gpu(tmp_path: Path) -> None:
    whole = "gpu-0000-11-00-0"
    tell(
        tmp_path,
        "nvidia:h100,mig=3g.40gb:1g.10gb",
        3,
        {"apply": objects("classes.yaml")},
        {"apply": pod("small", "mig-1g.10gb.gpu.claimd.dev")},
        *runs("small", f"{whole}-mig-7-0"),
        {"apply": pod("greedy", "gpu.claimd.dev")},
        {
            "run": "claimd explain pod/greedy",
            "exits": 3,
            "contains": ['type is "divided"'],
        },
    )


@pytest.mark.slow
def test_a_partition_of_an_instinct_whose_kfd_is_closed(tmp_path: Path) -> None:
    tell(
        tmp_path,
        "amd:mi300x,mode=cpx,kfd=closed",
        9,
        {"apply": pod("first", "part.gpu.claimd.dev")},
        *runs("first", "gpu-0000-13-00-0-xcp-0"),
        {"apply": pod("second", "part.gpu.claimd.dev")},
        *runs("second", "gpu-0000-13-00-0-xcp-1"),
    )


def test_the_classes_of_the_example_are_those_that_its_pod_asks_for() -> None:
    classes = {obj["metadata"]["name"] for obj in objects("classes.yaml")}
    template = objects("pod.yaml")[0]
    (wanted,) = template["spec"]["spec"]["devices"]["requests"]
    assert wanted["exactly"]["deviceClassName"] in classes
