"""Tests with the real kubectl: the one that the rig has built, or the one in PATH."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from claimd.sim.apiserver.server import Options, serve

ROOT = Path(__file__).parents[4]
BUILT = Path(os.environ.get("RIG_CACHE", Path.home() / ".cache/rig")) / "bin"


def binary():
    built = sorted(BUILT.glob("kube-1.37.*/kubectl"))
    return str(built[-1]) if built else shutil.which("kubectl")


pytestmark = pytest.mark.skipif(
    not binary(), reason="no kubectl: neither built by the rig nor in PATH"
)

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, labels: {team: %s}}
spec: {devices: {requests: [
  {name: gpu, exactly: {deviceClassName: gpu.claimd.dev, allocationMode: ExactCount, count: 1}}]}}
"""


class Kubectl:
    def __init__(self, config, folder):
        self.words = [binary(), f"--kubeconfig={config}", f"--cache-dir={folder}/cache"]

    async def start(self, *words, **environment):
        return await asyncio.create_subprocess_exec(
            *self.words,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | environment,
        )

    async def __call__(self, *words, stdin="", code=0, **environment):
        """Returns the output of kubectl, or for another exit code its error message."""
        process = await self.start(*words, **environment)
        async with asyncio.timeout(30):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode == code, f"{words}: {err.decode()}"
        return (err if code else out).decode()


@pytest.fixture
async def api():
    """Runs a server with TLS, as `claimd sim` does: kubectl sends its token only over TLS."""
    async with serve(Options(tls=True)) as served:
        yield served


@pytest.fixture
async def kubectl(api, tmp_path):
    return Kubectl(api.kubeconfig(tmp_path / "kubeconfig"), tmp_path)


@pytest.mark.slow
async def test_apply_in_three_ways(kubectl):
    assert (
        await kubectl("apply", "-f", "-", stdin=CLAIM % "a")
        == "resourceclaim.resource.k8s.io/c created\n"
    )
    assert (
        await kubectl("apply", "-f", "-", stdin=CLAIM % "a")
        == "resourceclaim.resource.k8s.io/c unchanged\n"
    )
    assert (
        await kubectl("apply", "-f", "-", stdin=CLAIM % "b")
        == "resourceclaim.resource.k8s.io/c configured\n"
    )
    assert (
        await kubectl("get", "resourceclaim", "c", "-o", "jsonpath={.metadata.labels.team}") == "b"
    )
    wrong = CLAIM.replace("spec: {", "spec: {wrong: 1, ") % "b"
    said = await kubectl("apply", "-f", "-", stdin=wrong, code=1)
    assert 'unknown field "spec.wrong"' in said
    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    said = await kubectl(*other, stdin=CLAIM % "c", code=1)
    assert 'conflict with "kubectl-client-side-apply" using resource.k8s.io/v1' in said
    said = await kubectl(*other, "--force-conflicts", stdin=CLAIM % "c")
    assert said == "resourceclaim.resource.k8s.io/c serverside-applied\n"
    said = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=CLAIM % "d")
    assert said == "resourceclaim.resource.k8s.io/c configured (server dry run)\n"


DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.toys.example.com}
spec:
  group: toys.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 1, description: how large it is}
"""
WIDGET = """
apiVersion: toys.example.com/v1
kind: Widget
metadata: {name: w}
spec: {%s}
"""


@pytest.mark.slow
async def test_custom_resources(kubectl):
    await kubectl("apply", "-f", "-", stdin=DEFINITION)
    await kubectl("wait", "--for=condition=Established", "crd/widgets.toys.example.com")
    said = await kubectl("apply", "-f", "-", stdin=WIDGET % "siez: 5", code=1)
    assert 'unknown field "spec.siez"' in said
    await kubectl("apply", "-f", "-", stdin=WIDGET % "size: 2")
    assert (await kubectl("get", "wd")).split() == ["NAME", "SIZE", "w", "2"]
    assert "widget.toys.example.com/w" in await kubectl("get", "all", "-o", "name")
    assert "how large it is" in await kubectl("explain", "widget.spec.size")

    await kubectl("patch", "widget", "w", "--type=merge", "-p", '{"spec": {"size": 3}}')
    await kubectl("scale", "widget", "w", "--replicas=4", "--current-replicas=3")
    assert "Size:  4" in await kubectl("describe", "widget", "w")
    await kubectl("delete", "crd", "widgets.toys.example.com")
    assert "(NotFound)" in await kubectl("get", "widgets", code=1)


async def test_get_describe_explain(kubectl):
    await kubectl("create", "-f", "-", stdin=CLAIM % "a")
    table = (await kubectl("get", "resourceclaims")).split()
    assert table[:5] == ["NAME", "STATE", "AGE", "c", "pending"]
    described = await kubectl("describe", "resourceclaim", "c")
    assert "Device Class Name:  gpu.claimd.dev" in described
    assert "deviceClassName\t<string> -required-" in await kubectl(
        "explain", "resourceclaim.spec.devices.requests.exactly"
    )
    assert (
        json.loads(await kubectl("get", "all,resourceclaims", "-A", "-o", "json"))["items"][-1][
            "metadata"
        ]["name"]
        == "c"
    )
    described = await kubectl("explain", "resourceclaim.status.reservedFor")
    assert "<empty>" not in described and "may use the claim" in described
    assert "At most 256 items." in " ".join(described.split())
    assert "resourceClaimName\t<string>" in await kubectl("explain", "pod.spec.resourceClaims")
    assert "resourceclaims" in await kubectl(
        "api-resources", "--api-group=resource.k8s.io", "-o", "name"
    )
    assert (await kubectl("get", "resourceclaims.v1beta1.resource.k8s.io", "-o", "name")).endswith(
        "/c\n"
    )


@pytest.mark.slow
async def test_edit_patch_label_wait_delete(kubectl):
    await kubectl("create", "-f", "-", stdin=CLAIM % "a")
    said = await kubectl("edit", "resourceclaim", "c", KUBE_EDITOR="sed -i 's/team: a/team: b/'")
    assert said == "resourceclaim.resource.k8s.io/c edited\n"
    await kubectl("label", "resourceclaim", "c", "new=label")
    await kubectl("annotate", "resourceclaim", "c", "new=annotation")
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}
    }
    waiting = await kubectl.start(
        "wait", "resourceclaim/c", "--for=jsonpath={.status.allocation}", "--timeout=20s"
    )
    patch = json.dumps({"status": {"allocation": allocation}})
    await kubectl(
        "patch", "resourceclaim", "c", "--subresource=status", "--type=merge", "-p", patch
    )
    out, _ = await waiting.communicate()
    assert out == b"resourceclaim.resource.k8s.io/c condition met\n"
    stored = json.loads(await kubectl("get", "resourceclaim", "c", "-o", "json"))
    assert stored["metadata"]["labels"] == {"team": "b", "new": "label"}
    assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "x"
    said = await kubectl("delete", "resourceclaim", "c")
    assert said.startswith('resourceclaim.resource.k8s.io "c" deleted')
    assert "NotFound" in await kubectl("get", "resourceclaim", "c", code=1)


async def test_get_watch(kubectl):
    await kubectl("create", "-f", "-", stdin=CLAIM % "a")
    watching = await kubectl.start("get", "resourceclaims", "-w", "--output-watch-events")
    async with asyncio.timeout(30):
        assert (await watching.stdout.readline()).split() == [b"EVENT", b"NAME", b"STATE", b"AGE"]
        assert (await watching.stdout.readline()).split()[:3] == [b"ADDED", b"c", b"pending"]
        await kubectl("label", "resourceclaim", "c", "team-")
        assert (await watching.stdout.readline()).split()[:3] == [b"MODIFIED", b"c", b"pending"]
        await kubectl("delete", "resourceclaim", "c")
        assert (await watching.stdout.readline()).split()[:2] == [b"DELETED", b"c"]
    watching.terminate()
    await watching.wait()


async def test_the_manifests_of_this_project(kubectl):
    for words in (["apply", "-k"], ["apply", "-k"], ["apply", "--server-side", "-k"]):
        said = await kubectl(*words, str(ROOT / "deploy" / "base"))
        assert said.count("\n") >= 13
    stored = json.loads(
        await kubectl("get", "daemonset", "claimd", "-n", "claimd-system", "-o", "json")
    )
    assert stored["spec"]["template"]["spec"]["containers"][0]["name"] == "claimd"
    table = await kubectl(
        "get", "daemonsets,deviceclasses,clusterroles,validatingadmissionpolicies", "-A"
    )
    assert "resourceslices.gpu.claimd.dev" in table
    assert (await kubectl("delete", "-k", str(ROOT / "deploy" / "base"), "--wait=false")).count(
        "deleted"
    ) >= 13


@pytest.mark.slow
async def test_what_kubectl_sends_as_protobuf(kubectl, api, tmp_path):
    await kubectl("create", "namespace", "team")
    await kubectl("create", "serviceaccount", "sa", "-n", "team")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods", "-n", "team")
    someone = "--as=system:serviceaccount:team:sa"
    assert await kubectl("auth", "can-i", "get", "pods", "-n", "team", someone, code=1) == ""
    await kubectl(
        "create", "rolebinding", "b", "--role=r", "--serviceaccount=team:sa", "-n", "team"
    )
    assert await kubectl("auth", "can-i", "get", "pods", "-n", "team", someone) == "yes\n"
    token = await kubectl("create", "token", "sa", "-n", "team")
    account = Kubectl(api.kubeconfig(tmp_path / "account", token.strip()), tmp_path)
    assert "system:serviceaccount:team:sa" in await account("auth", "whoami")
    said = await account("get", "nodes", code=1)
    assert (
        'User "system:serviceaccount:team:sa" cannot list resource "nodes" in API group "" at the cluster'
        in said
    )
    await kubectl("create", "deployment", "d", "--image=x", "--replicas=0")
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "0"
    await kubectl("scale", "deployment", "d", "--replicas=3", "--current-replicas=0")
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "3"


async def test_paths_as_they_are(kubectl):
    assert json.loads(await kubectl("get", "--raw", "/version"))["minor"] == "37"
    assert json.loads(await kubectl("get", "--raw", "/api/v1/nodes"))["items"] == []


async def test_a_proxy_s_clients_are_its_own_user(kubectl):
    proxy = await kubectl.start("proxy", "--port=0")
    try:
        async with asyncio.timeout(30):
            line = (await proxy.stdout.readline()).decode()
        port = int(line.strip().rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 OK"), answer
    finally:
        proxy.terminate()
        await proxy.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "versions"), [("1.30", "v1alpha2"), ("1.31", "v1alpha3"), ("1.34", "v1 v1beta1")]
)
async def test_other_releases(tmp_path, release, versions):
    async with serve(Options(profile=release)) as api:
        kubectl = Kubectl(api.kubeconfig(tmp_path / "kubeconfig"), tmp_path)
        assert f"Server Version: v{release}." in await kubectl("version")
        listed = await kubectl("api-versions")
        assert all(f"resource.k8s.io/{version}\n" in listed for version in versions.split())
        await kubectl("get", "resourceclaims,resourceslices", "-A")


async def test_a_kind_that_the_release_does_not_serve(kubectl):
    old = CLAIM.replace("resource.k8s.io/v1", "resource.k8s.io/v1alpha2") % "a"
    for words in (["apply"], ["apply", "--server-side"], ["create"]):
        said = await kubectl(*words, "-f", "-", stdin=old, code=1)
        assert 'no matches for kind "ResourceClaim" in version "resource.k8s.io/v1alpha2"' in said
