import pytest

from claimd.common import errors
from claimd.sim import manifests


def test_they_are_those_that_kustomize_would_give():
    objects = {(obj["kind"], obj["metadata"]["name"]): obj["metadata"] for obj in manifests.base()}
    assert objects["ServiceAccount", "claimd"] == {
        "name": "claimd",
        "namespace": "claimd-system",
        "labels": {"app.kubernetes.io/name": "claimd"},
    }
    assert "namespace" not in objects["ClusterRole", "claimd"]
    labels = objects["Namespace", "claimd-system"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    kinds = {kind for kind, _ in objects}
    assert {"DaemonSet", "DeviceClass", "ClusterRoleBinding", "ValidatingAdmissionPolicy"} <= kinds


def test_a_wheel_without_them_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "_IN_WHEEL", tmp_path / "a")
    monkeypatch.setattr(manifests, "_IN_SOURCE_TREE", tmp_path / "b")
    with pytest.raises(errors.Fatal, match=r"neither at .*/a nor at .*/b: install it again"):
        manifests.base()
