"""The driver's own suite: what docs/ci.md shows."""

import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def cluster(claimd_cluster_factory):
    """One node, on which no driver runs but ours."""
    return claimd_cluster_factory(nodes=["node-1"])


@pytest.fixture(scope="session")
def driver(cluster):
    node = cluster.nodes["node-1"]
    process = subprocess.Popen(
        [sys.executable, "driver.py", node.name, node.kubelet_dir, node.cdi_dir],
        env=cluster.environ,
    )
    yield process
    process.terminate()
    process.wait()


def test_a_pod_gets_its_widgets_and_gives_them_back(cluster, driver):
    cluster.apply("manifests")
    cluster.wait("pod/user", "Succeeded")
    assert cluster.logs("user").startswith("got widget-")

    cluster.wait("resourceclaim/two-widgets", {"status.allocation": {"exists": False}})
    assert list(cluster.nodes["node-1"].cdi_dir.iterdir()) == []
