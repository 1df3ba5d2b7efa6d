"""claimd prepares claims before the simulated scheduler binds their pods, on nodes that differ."""

import time

import pytest

from tests.support import cluster_objects

COMPONENT = "deploy/components/prepare-before-bind/rbac.yaml"
PREPARED = "claimd.dev/Prepared"
PATIENCE = 60.0


@pytest.fixture
def cluster(claimd_cluster_factory, pytestconfig):
    """Returns a cluster in which node a cannot prepare its GPU, and node b can."""
    early = {"prepare_before_bind": "all"}
    without_libraries = early | {"require_libraries": "true"}
    cluster = claimd_cluster_factory(
        {
            "a": {"gpus": "nvidia:h100", "settings": without_libraries},
            "b": {"gpus": "nvidia:h100", "settings": early},
        }
    )
    cluster.apply((pytestconfig.rootpath / COMPONENT).read_text())
    for node in cluster.nodes.values():
        node.restart()
    return cluster


def until(fact):
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.1)


def has_conditions(cluster):
    devices = [each for item in cluster.list("resourceslice") for each in item["spec"]["devices"]]
    return len(devices) == 2 and all(
        PREPARED in each.get("bindingConditions", ()) for each in devices
    )


def test_a_pod_whose_gpu_cannot_be_prepared_runs_on_the_other_node(cluster):
    until(lambda: has_conditions(cluster))
    claims = [{"name": "gpu", "resourceClaimName": "train"}]
    main = {"name": "main", "image": "i", "command": ["sleep", "1000"]}
    pod = cluster_objects.pod(
        resourceClaims=claims, containers=[main | {"resources": {"claims": [{"name": "gpu"}]}}]
    )
    claim = cluster_objects.claim(deviceClassName="nvidia.gpu.claimd.dev")
    cluster.apply([claim, pod])
    placed = cluster.wait("pod/job", "Running", timeout=PATIENCE)
    assert placed["spec"]["nodeName"] == "b"
    notes = [event.get("note") or event.get("message") for event in cluster.list("event")]
    assert any("device binding failed: claim=train" in note for note in notes)
