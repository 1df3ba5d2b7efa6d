"""What Deployments and their like get without saying it."""

import pytest

from plugin.sim.apiserver.rules import apps


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
        ("ReplicaSet", {"replicas": None}, {"replicas": 1}),
        ("ControllerRevision", {"replicas": None}, {"replicas": None}),
    ],
)
def test_defaults(kind, spec, expected):
    assert apps.with_defaults(kind, {"spec": spec}) == {"spec": expected}


def test_their_pods_have_the_defaults_of_pods():
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = apps.with_defaults("Deployment", {"spec": {"template": template}})
    spec = made["spec"]["template"]["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
