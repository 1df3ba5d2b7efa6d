"""Pods written for a vendor's driver, as a story on real `claimd run` processes with that driver's
name.

The classes and rights come from the component.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.told_story import tell

DEPLOY = Path(__file__).parents[4] / "deploy"


def installed_objects(vendor: str) -> list[dict[str, Any]]:
    """Returns the component's classes, and the roles with the vendor's driver name.
    tests/test_deploy.py checks the component."""
    classes = (DEPLOY / f"components/as-{vendor}/deviceclasses.yaml").read_text()
    rights = (DEPLOY / "base/rbac.yaml").read_text().replace("gpu.claimd.dev", f"gpu.{vendor}.com")
    documents = [*yaml.safe_load_all(classes), *yaml.safe_load_all(rights)]
    return [
        document for document in documents if document["kind"] in ("DeviceClass", "ClusterRole")
    ]


def claim(name: str, class_: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": class_}}]
    }
    if config is not None:
        opaque = {"driver": f"gpu.{class_.split('.')[-2]}.com", "parameters": config}
        devices["config"] = [{"requests": ["gpu"], "opaque": opaque}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def pod(name: str, containers: int = 1, **resources: Any) -> dict[str, Any]:
    """Builds a pod with the claim of its name, or with these resources."""
    wanted = resources or {"claims": [{"name": "gpu"}]}
    command = ["sh", "-c", "env | grep CLAIMD_; exec sleep 600"]
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": f"c{number}", "image": "any", "command": command, "resources": wanted}
            for number in range(containers)
        ],
    }
    if not resources:
        spec["resourceClaims"] = [
            {"name": "gpu", "resourceClaimName": name.split("-", maxsplit=1)[0]}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def runs(name: str) -> dict[str, Any]:
    """Builds the step that waits for the pod; claimd may need 30 s if it started before it had its
    rights."""
    return {"wait": f"pod/{name}", "until": {"status.phase": "Running"}, "within": 60}


def nvidias(kind: str, **sharing: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_in_nvidias_place(tmp_path: Path) -> None:
    """Covers a shared claim, shared containers, a MIG instance, the device plugin's name, an
    accepted configuration, and MPS, which is refused with the reason."""
    limits = {"nvidia.com/gpu": "1"}
    objects = [
        claim("shared", "gpu.nvidia.com"),
        claim("sliced", "gpu.nvidia.com", nvidias("GpuConfig", strategy="TimeSlicing")),
        claim("mig", "mig.nvidia.com", nvidias("MigDeviceConfig", strategy="TimeSlicing")),
        claim("mps", "gpu.nvidia.com", nvidias("GpuConfig", strategy="MPS")),
        pod("shared-0"),
        pod("shared-1"),
        pod("sliced", containers=2),
        pod("mig"),
        pod("plugins", limits=limits, requests=limits),
        pod("mps"),
    ]
    tell(
        tmp_path,
        [
            {
                "name": "one",
                "gpus": ["nvidia:h100=4", "nvidia:a100,mig=7", "amd:mi300x"],
                "settings": {"driver-name": "gpu.nvidia.com", "include": "nvidia"},
            }
        ],
        {"apply": [*installed_objects("nvidia"), *objects]},
        *map(runs, ("shared-0", "shared-1", "sliced", "mig", "plugins")),
        {"logs": "mig", "contains": ["_MIG_"]},
        {
            "wait": "event",
            "where": {"involvedObject.name": "mps", "reason": "FailedPrepareDynamicResources"},
            "until": {"message": {"contains": "sharing by MPS needs NVIDIA's MPS daemon"}},
        },
    )
