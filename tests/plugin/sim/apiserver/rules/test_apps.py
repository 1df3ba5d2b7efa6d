"""Tests of the defaults of Deployments, ReplicaSets and DaemonSets."""

import pytest

from claimd.sim.apiserver.rules import apps
from tests.support.played_cluster import PlayedCluster, Refused
from tests.support.workload_objects import deployment


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (
            "Deployment",
            {},
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
            },
        ),
        (
            "Deployment",
            {"replicas": 0, "strategy": {"type": "Recreate"}},
            {
                "replicas": 0,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "Recreate"},
            },
        ),
        (
            "DaemonSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}},
            {
                "revisionHistoryLimit": 10,
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0},
                },
            },
        ),
        (
            "StatefulSet",
            {},
            {
                "podManagementPolicy": "OrderedReady",
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
                },
            },
        ),
        ("ReplicaSet", {"replicas": None}, {"replicas": 1}),
        ("ControllerRevision", {"replicas": None}, {"replicas": None}),
    ],
)
def test_defaults(kind, spec, expected):
    assert apps.with_defaults(kind, {"spec": spec}) == {"spec": expected}


def test_their_pods_have_the_defaults_of_pods():
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    stored = apps.with_defaults("Deployment", {"spec": {"template": template}})
    spec = stored["spec"]["template"]["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)


def test_who_writes_the_status_may_annotate_and_not_label():
    cluster = PlayedCluster()
    stored = cluster.create("deployments", deployment())
    said = {"annotations": {"revision": "7"}, "labels": {"who": "me"}}
    changed = cluster.put_status("deployments", stored | {"metadata": stored["metadata"] | said})
    assert changed["metadata"]["annotations"] == {"revision": "7"}
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == stored["metadata"]["generation"]


@pytest.mark.parametrize("amount", ["x", "5", "%", -1])
def test_an_amount_is_a_number_or_a_percentage(amount):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": amount}}
    with pytest.raises(Refused, match=r"spec\.strategy\.rollingUpdate\.maxSurge"):
        PlayedCluster().create("deployments", deployment(strategy=rolling))


def test_a_template_without_a_spec_stops_nobody():
    cluster = PlayedCluster()
    written = deployment()
    written["spec"]["template"]["spec"] = None
    cluster.create("deployments", written)
    cluster.create("deployments", deployment("other"))
    cluster.pass_time(5)
    assert len(cluster.list("pods")) == 1
