"""The manifests of this project in a simulated server: role, policy, and a token of the account."""

import itertools
from pathlib import Path

import pytest

from tests.support import manifests

BASE = Path(__file__).parents[5] / "deploy" / "base"
PODS = "/api/v1/namespaces/claimd-system/pods"
ACCOUNT = "/api/v1/namespaces/claimd-system/serviceaccounts/claimd"
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/claimd-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
FILES = ("namespace.yaml", "rbac.yaml", "admission.yaml")


@pytest.fixture
async def plugin(raw):
    """A client with the token of the plugin's pod on node n1. The manifests are applied."""
    assert (await raw("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})).status == 201
    for document in itertools.chain(*(manifests.read((BASE / name).read_text()) for name in FILES)):
        if document["kind"] == "ServiceAccount":
            document["metadata"]["namespace"] = "claimd-system"
        reply = await raw("POST", PLURALS[document["kind"]], document)
        assert reply.status == 201, reply.body
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "claimd", "containers": [{"name": "c", "image": "i"}]},
    }
    assert (await raw("POST", PODS, pod)).status == 201
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await raw("POST", f"{PODS}/p/binding", target)).status == 201
    asked = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}
    reply = await raw("POST", f"{ACCOUNT}/token", asked)
    assert reply.status == 201, reply.body
    token = reply.json["status"]["token"]

    async def ask(method, path, body=None, headers=None):
        return await raw(method, path, body, headers, token=token)

    return ask
