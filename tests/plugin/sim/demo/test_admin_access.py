"""The monitor example as a story on real `claimd run` processes.

The monitor gets every GPU of its node, including those in use, and takes none away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import told_story

EXAMPLES = Path(__file__).parents[4] / "deploy/examples"


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def pod_with_all_parts() -> list[dict[str, Any]]:
    [template, pod] = objects("one-pod-one-gpu/pod.yaml")
    template["metadata"]["name"] = "parts"
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"] = {
        "deviceClassName": "part.gpu.claimd.dev",
        "allocationMode": "All",
    }
    pod["metadata"]["name"] = "parts"
    pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "parts"
    return [template, pod]


@pytest.mark.slow
def test_a_monitor_beside_pods_that_work(tmp_path: Path) -> None:
    """The monitor waits neither for a GPU in use, nor for one whose partitions are in use."""
    running = {"status.phase": "Running"}
    elsewhere = {"namespace": "gpu-monitor"}
    [template, monitor] = objects("monitor/pod.yaml")
    told_story.tell(
        tmp_path,
        [{"name": "one", "gpus": ["nvidia:h100,mig=3g.40gb:1g.10gb", "nvidia:l4"]}],
        {"wait": "resourceslice", "until": {"spec.devices[*]": {"count": 4}}},
        {"apply": [*objects("one-pod-one-gpu/pod.yaml"), *pod_with_all_parts()]},
        {"wait": "pod/one-pod-one-gpu", "until": running},
        {"wait": "pod/parts", "until": running},
        {"apply": [*objects("monitor/admin.yaml"), template, monitor]},
        {"wait": "pod/monitor", "until": running} | elsewhere,
        {
            "logs": "monitor",
            "contains": [
                "DRA_ADMIN_ACCESS=true",
                "CLAIMD_GPU_0000_11_00_0=0000:11:00.0",
                "CLAIMD_GPU_0000_13_00_0=0000:13:00.0",
            ],
        }
        | elsewhere,
    )
