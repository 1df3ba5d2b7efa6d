"""The tolerations of a DaemonSet's pods."""

from claimd.kubernetes.scheduling import daemon_sets


def test_the_templates_tolerations_come_first():
    own = {"key": "gpu", "operator": "Exists"}
    spec = {"tolerations": [own]}
    tolerations = daemon_sets.pod_tolerations(spec)
    assert tolerations[0] == own
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}.items() <= (
        tolerations[-1].items()
    )
    assert spec == {"tolerations": [own]}


def test_a_template_without_tolerations_gets_the_automatic_ones():
    for spec in ({}, {"tolerations": None}, {"tolerations": []}):
        effects = {
            toleration["key"].rpartition("/")[2]: toleration["effect"]
            for toleration in daemon_sets.pod_tolerations(spec)
        }
        assert effects == {
            "not-ready": "NoExecute",
            "unreachable": "NoExecute",
            "disk-pressure": "NoSchedule",
            "memory-pressure": "NoSchedule",
            "pid-pressure": "NoSchedule",
            "unschedulable": "NoSchedule",
        }
