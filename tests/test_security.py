"""Tests of docs/security.md: its promises about the manifests, and the tests that it names."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs/security.md").read_text()


def test_whoever_can_do_harm_has_tests_that_hold_it():
    _, _, below = TEXT.partition("## The worst that each can do")
    rows = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 9
    for row in rows:
        tests = re.findall(r"`(tests/\S+\.py)::(\w+)`", row)
        assert tests, row
        for path, name in tests:
            code = (ROOT / path).read_text()
            assert re.search(rf"^(async )?def {name}\(", code, re.M), f"{path} has no {name}"


@pytest.fixture
def pod():
    text = (ROOT / "deploy/base/daemonset.yaml").read_text()
    return yaml.safe_load(text)["spec"]["template"]["spec"]


def test_the_pod_has_no_right_that_it_does_not_need(pod):
    assert pod["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_pod_shares_nothing_with_its_node_but_folders(pod):
    for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        assert name not in pod
    for volume in pod["volumes"]:
        assert set(volume) <= {"name", "hostPath", "emptyDir", "projected"}
        path = volume.get("hostPath", {}).get("path", "/var/lib/kubelet/x")
        assert path.startswith(("/var/lib/kubelet/", "/var/run/cdi")), volume


@pytest.mark.parametrize(
    ("component", "expected"),
    [("nvidia", None), ("metrics", None), ("kernel-log", {"add": ["SYSLOG"]}), ("fake", None)],
)
def test_components_add_what_is_said_and_no_more(component, expected):
    text = (ROOT / f"deploy/components/{component}/daemonset.yaml").read_text()
    for container in yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]:
        context = container.get("securityContext", {})
        assert "privileged" not in context
        assert context.get("capabilities") == expected


def test_that_for_virtual_machines_sees_the_nodes_processes_and_nothing_of_its_network():
    text = (ROOT / "deploy/components/vfio/daemonset.yaml").read_text()
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    (container,) = pod.pop("containers")
    modules = {"path": "/lib/modules", "type": "DirectoryOrCreate"}
    assert pod == {"hostPID": True, "volumes": [{"name": "modules", "hostPath": modules}]}
    assert container == {
        "name": "claimd",
        "securityContext": {"privileged": True, "allowPrivilegeEscalation": True},
        "volumeMounts": [{"name": "modules", "mountPath": "/lib/modules", "readOnly": True}],
    }


def test_people_know_where_to_report():
    assert "## Report a problem" in TEXT
