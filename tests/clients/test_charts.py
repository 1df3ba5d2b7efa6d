"""What others install: a chart of NVIDIA's DRA driver, and definitions of training operators.

They are no part of this project. NVIDIA_CHART says where the chart lies, DEFINITIONS names a folder
with CustomResourceDefinitions; without them there is nothing to try.
"""

import os
from pathlib import Path

import pytest
import yaml

from tests.clients.toolchains import INSTALLING, RUNNING, newest, run, simulated

COMPUTE_DOMAIN = """
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: domain}
spec: {numNodes: 2, channel: {resourceClaimTemplate: {name: channel}}}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


def place(variable):
    path = Path(os.environ.get(variable) or "/nonexistent")
    if not path.is_dir():
        pytest.skip(f"{variable} names no folder")
    return path


def test_the_chart_of_nvidia(tmp_path):
    """Its objects are taken, and its custom resources served; its images are not run."""
    chart, helm, kubectl = place("NVIDIA_CHART"), newest("helm"), newest("kubectl")
    (tmp_path / "domain.yaml").write_text(COMPUTE_DOMAIN)
    with simulated(tmp_path) as config:
        places = {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
        override = "--set=gpuResourcesEnabledOverride=true"
        words = ["install", "driver", str(chart), "-n", "driver", "--create-namespace", override]
        run([helm, *words], tmp_path, **places)
        run([kubectl, "apply", "-f", "domain.yaml"], tmp_path, **places)
        path = "jsonpath={.spec.channel.allocationMode}"
        shown = run([kubectl, "get", "computedomain", "domain", "-o", path], tmp_path, **places)
        assert shown == "Single"
        assert "domain" in run([kubectl, "get", "computedomains"], tmp_path, **places)
        run([helm, "uninstall", "driver", "-n", "driver"], tmp_path, **places)


def test_definitions_of_others(tmp_path):
    """Each is taken and established, and its fields are explained."""
    folder, kubectl = place("DEFINITIONS"), newest("kubectl")
    paths = sorted(folder.glob("*.yaml"))
    assert paths, f"{folder} has no *.yaml"
    with simulated(tmp_path) as config:
        places = {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
        for path in paths:
            name = yaml.safe_load(path.read_text())["metadata"]["name"]
            run([kubectl, "apply", "--server-side", "-f", str(path)], tmp_path, **places)
            words = ["wait", "--for=condition=Established", f"crd/{name}"]
            run([kubectl, *words], tmp_path, **places)
            assert "spec" in run([kubectl, "explain", name], tmp_path, **places)
