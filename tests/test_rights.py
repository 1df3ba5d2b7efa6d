"""What the token of one node's pod may do with the manifests as they are shipped, and under names that an overlay gives:
on releases where Kubernetes itself tells a report from an allocation, and on those where only our policies do.
"""

import asyncio
import http.client
import json
import re
from pathlib import Path

import pytest
import yaml

from claimd.sim.apiserver.server import Options, serve
from tests.support import manifests

BASE = Path(__file__).parents[1] / "deploy" / "base"
DOCS = BASE.parents[1] / "docs/security.md"
COMPONENTS = BASE.parent / "components"
DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
OURS = "gpu.claimd.dev"


class Cluster:
    """An API server with the manifests applied, and a pod of claimd on node n1."""

    def __init__(self, api, namespace, account):
        self.api, self.namespace, self.account = api, namespace, account
        self.token = ""

    async def ask(self, method, path, body=None, headers=None, *, admin=False):
        """Asks as the pod of node n1, or as the administrator. Returns the status and the document."""
        token = self.api.token if admin else self.token

        def request():
            address = self.api.address.removeprefix("http://")
            connection = http.client.HTTPConnection(address, timeout=60)
            data = None if body is None else json.dumps(body)
            sent = {"Content-Type": "application/json"} | (headers or {})
            connection.request(method, f"/as/{token}{path}", data, sent)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            return answer.status, json.loads(text)

        return await asyncio.to_thread(request)

    async def admin(self, method, path, body=None, headers=None):
        status, document = await self.ask(method, path, body, headers, admin=True)
        assert status < 300, document
        return document

    async def set_up(self):
        await self.admin("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        for name in ("namespace.yaml", "rbac.yaml", "admission.yaml", "gpu-config.yaml"):
            for document in manifests.read((BASE / name).read_text()):
                await self._apply(document)

        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        containers = [{"name": "c", "image": "i"}]
        spec = {"serviceAccountName": self.account, "containers": containers}
        await self.admin("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
        target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        await self.admin("POST", f"{pods}/p/binding", target)
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
        self.token = await self.token_for(bound)

    async def token_for(self, spec):
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        document = await self.admin("POST", path, {"spec": spec})
        return document["status"]["token"]

    async def _apply(self, document):
        """Creates a document as an overlay writes it: references have the new names, text does not."""
        kind = document["kind"]
        if kind == "Namespace":
            document["metadata"]["name"] = self.namespace
        if kind == "ServiceAccount":
            document["metadata"] |= {"name": self.account, "namespace": self.namespace}
        if kind == "ClusterRoleBinding":
            document["subjects"][0] |= {"name": self.account, "namespace": self.namespace}
        await self.admin("POST", COLLECTIONS[kind].format(namespace=self.namespace), document)


@pytest.fixture(params=["1.34", pytest.param("1.36", marks=pytest.mark.slow), "1.37"])
def release(request):
    return request.param


@pytest.fixture(params=[("claimd-system", "claimd"), ("gpus", "team-claimd")])
async def cluster(request, release):
    async with serve(Options(profile=release)) as api:
        new_cluster = Cluster(api, *request.param)
        await new_cluster.set_up()
        yield new_cluster


# ---------------------------------------------------------------------- what RBAC says

# What every authenticated caller of Kubernetes may ask: about itself.
ANYBODYS = {
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}
# What Kubernetes gives every service account by itself, in releases that serve it: 1.37 does, by the
# role system:cluster-trust-bundle-discovery. Certificates of authorities, which are no secret.
ACCOUNTS = {
    ("certificates.k8s.io", "clustertrustbundles", verb) for verb in ("get", "list", "watch")
}
NAME = "nobody"
AS_SHIPPED = pytest.mark.parametrize("cluster", [("claimd-system", "claimd")], indirect=True)


def granted(marker="rbac"):
    """Returns the rights that docs/security.md lists for kinds of objects: group, resource, verb."""
    _, _, table = DOCS.read_text().partition(f"<!-- generated: {marker} -->\n")
    rights = set()
    for row in table.partition("<!-- end -->")[0].strip().splitlines()[2:]:
        objects, verbs, *_ = (re.findall("`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        group, _, resource = objects[0].partition("/")
        if group == "claimd.dev" or resource.endswith("/driver"):
            continue  # not a kind of object: what a policy, or Kubernetes itself, asks about a write
        rights |= {("" if group == "core" else group, resource, verb) for verb in verbs}
    return rights


async def served(cluster):
    """Yields every resource in every version: its group, the path of its version, and its discovery."""
    places = [
        ("", f"/api/{version}") for version in (await cluster.admin("GET", "/api"))["versions"]
    ]
    for group in (await cluster.admin("GET", "/apis"))["groups"]:
        for version in group["versions"]:
            places.append((group["name"], f"/apis/{version['groupVersion']}"))
    for group, place in places:
        for resource in (await cluster.admin("GET", place))["resources"]:
            yield group, place, resource


def request_of(place, resource, verb):
    """The request that is this verb: its method, path, body and headers."""
    name, _, below = resource["name"].partition("/")
    collection = (
        f"{place}/namespaces/default/{name}" if resource["namespaced"] else f"{place}/{name}"
    )
    path = f"{collection}/{NAME}/{below}" if below else f"{collection}/{NAME}"
    return {
        "get": ("GET", path, None, {}),
        "list": ("GET", collection, None, {}),
        "watch": ("GET", f"{collection}?watch=true&timeoutSeconds=1", None, {}),
        "create": ("POST", path if below else collection, {}, {}),
        "update": ("PUT", path, {}, {}),
        "patch": ("PATCH", path, {}, MERGE),
        "delete": ("DELETE", path, None, {}),
        "deletecollection": ("DELETE", collection, None, {}),
    }[verb]


@AS_SHIPPED
async def test_every_verb_on_every_kind_of_object(cluster):
    """Checks that nothing is let through but what the role names and what is everybody's."""
    expected = granted() | ANYBODYS
    refused, asked = set(), 0
    async for group, place, resource in served(cluster):
        verbs = [
            verb for verb in resource["verbs"] if (group, resource["name"], verb) not in expected
        ]
        # Those that are expected are tried in the newest version, which comes first; a watch by
        # claimd itself, since an answer to it has no end.
        for verb in resource["verbs"]:
            right = group, resource["name"], verb
            if right in expected and right not in refused and verb != "watch":
                verbs.append(verb)
        requests = [cluster.ask(*request_of(place, resource, verb)) for verb in verbs]
        answers = await asyncio.gather(*requests)
        asked += len(answers)
        for verb, (status, _) in zip(verbs, answers, strict=True):
            if status != 403:
                refused.add((group, resource["name"], verb))
    assert refused - ACCOUNTS == {right for right in expected if right[2] != "watch"}
    assert asked > 200


async def test_the_component_for_early_claims_lets_claims_be_listed_and_watched(cluster):
    """Checks also that it adds no other right."""
    assert granted("earlyclaims") == {
        ("resource.k8s.io", "resourceclaims", "list"),
        ("resource.k8s.io", "resourceclaims", "watch"),
    }
    everywhere = f"{DRA}/resourceclaims"
    assert (await cluster.ask("GET", everywhere))[0] == 403
    for document in manifests.read((COMPONENTS / "prepare-before-bind/rbac.yaml").read_text()):
        await cluster._apply(document)
    async with asyncio.timeout(30):
        while (await cluster.ask("GET", everywhere))[0] != 200:
            await asyncio.sleep(0.05)


async def test_the_component_of_metrics_adds_two_reviews_and_nothing_else(cluster):
    """Checks also that an account with its role for scrapers may get /metrics."""
    added = granted("reviews")
    paths = {
        (group, resource, "create"): f"/apis/{group}/v1/{resource}" for group, resource, _ in added
    }
    assert added == set(paths)
    access = paths["authorization.k8s.io", "subjectaccessreviews", "create"]
    question = {"user": "prometheus", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    for path in paths.values():
        assert (await cluster.ask("POST", path, {"spec": {"token": "t"}}))[0] == 403

    rules = []
    for document in manifests.read((COMPONENTS / "metrics-tls/rbac.yaml").read_text()):
        if document["metadata"]["name"] == "claimd-metrics-tls":
            rules += document.get("rules", [])
        await cluster._apply(document)
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules] == [
        ([group], [resource], [verb]) for group, resource, verb in sorted(added)
    ]

    review = {"spec": {"token": cluster.token}}
    async with asyncio.timeout(30):
        reviews = paths["authentication.k8s.io", "tokenreviews", "create"]
        while (answer := await cluster.ask("POST", reviews, review))[0] != 201:
            await asyncio.sleep(0.05)
    account = f"system:serviceaccount:{cluster.namespace}:{cluster.account}"
    assert answer[1]["status"]["user"]["username"] == account

    status, document = await cluster.ask("POST", access, {"spec": question})
    assert (status, document["status"]["allowed"]) == (201, False)
    binding = {
        "metadata": {"name": "scraper"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "claimd-metrics-reader",
        },
        "subjects": [
            {"kind": "User", "name": "prometheus", "apiGroup": "rbac.authorization.k8s.io"}
        ],
    }
    await cluster.admin("POST", f"{RBAC}/clusterrolebindings", binding)
    async with asyncio.timeout(30):
        while not (await cluster.ask("POST", access, {"spec": question}))[1]["status"]["allowed"]:
            await asyncio.sleep(0.05)


@AS_SHIPPED
async def test_in_a_vendors_place_the_token_serves_that_driver_alone(cluster):
    """Applies the patch of the component as kustomize does."""
    for vendor in ("nvidia", "amd", "intel"):
        component = yaml.safe_load((COMPONENTS / f"as-{vendor}/kustomization.yaml").read_text())
        (patch,) = (
            patch["patch"]
            for patch in component["patches"]
            if patch.get("target", {}).get("kind") == "ClusterRole"
        )
        operations = yaml.safe_load(patch)
        await cluster.admin("PATCH", f"{RBAC}/clusterroles/claimd", operations, JSON_PATCH)

        theirs = f"gpu.{vendor}.com"
        await eventually(cluster, slice_of(driver=theirs, name=vendor), 201)
        status, document = await cluster.ask("POST", SLICES, slice_of())
        assert (status, f"not write a slice of driver {OURS}" in document["message"]) == (422, True)
        await allocated(cluster, vendor, (theirs, "n1"), (OURS, "n1"))
        assert (await report(cluster, vendor, entry(theirs, "n1")))[0] == 200
        assert (await report(cluster, vendor, entry(OURS, "n1", "gpu-1")))[0] in (403, 422)


async def eventually(cluster, slice_, expected):
    """A real API server takes a moment to see a role that has changed."""
    async with asyncio.timeout(30):
        while (answer := await cluster.ask("POST", SLICES, slice_))[0] != expected:
            await asyncio.sleep(0.05)
    return answer


# ---------------------------------------------------------------------- what the policies say


def slice_of(node="n1", driver=OURS, pool=None, name="s"):
    spec = {
        "driver": driver,
        "pool": {"name": pool or node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"node": "n2"}, "may not write a slice of node n2"),
        ({"node": None, "pool": "n1"}, "may not write a slice of no single node"),
        ({"pool": "n2"}, "may not write a slice of another pool than n1"),
        ({"node": "n2", "pool": "n1"}, "may not write a slice of node n2"),
        ({"driver": "d.example.com"}, "may not write a slice of driver d.example.com"),
    ],
    ids=["another node", "all nodes", "another pool", "our pool elsewhere", "another driver"],
)
async def test_slices_of_others_are_refused(cluster, change, reason):
    status, document = await cluster.ask("POST", SLICES, slice_of(**change))
    assert status == 422
    assert reason in document["message"]

    # What somebody else has published can neither be changed nor taken away.
    stored = await cluster.admin("POST", SLICES, slice_of(**change))
    stored["spec"]["pool"]["generation"] = 2
    status, document = await cluster.ask("PUT", f"{SLICES}/s", stored)
    assert (status, reason in document["message"]) == (422, True)
    status, document = await cluster.ask("DELETE", f"{SLICES}/s")
    assert (status, reason in document["message"]) == (422, True)


async def test_its_own_slices_are_its_own(cluster):
    status, stored = await cluster.ask("POST", SLICES, slice_of())
    assert status == 201, stored
    stored["spec"]["pool"]["generation"] = 2
    assert (await cluster.ask("PUT", f"{SLICES}/s", stored))[0] == 200
    assert (await cluster.ask("DELETE", f"{SLICES}/s"))[0] == 200


async def test_no_slice_moves_to_another_node_or_pool(cluster):
    """Checks both directions: a policy that looks at one of two versions would let one through."""
    _, ours = await cluster.ask("POST", SLICES, slice_of())
    theirs = await cluster.admin("POST", SLICES, slice_of(node="n2", name="t"))
    for stored, node, pool in ((ours, "n2", "n2"), (ours, "n1", "n2"), (theirs, "n1", "n1")):
        path = f"{SLICES}/{stored['metadata']['name']}"
        before = await cluster.admin("GET", path)
        spec = stored["spec"] | {"nodeName": node, "pool": stored["spec"]["pool"] | {"name": pool}}
        status, document = await cluster.ask("PUT", path, stored | {"spec": spec})
        assert status == 422, document
        assert await cluster.admin("GET", path) == before


async def test_slices_are_not_deleted_together(cluster):
    await cluster.admin("POST", SLICES, slice_of(node="n2"))
    assert (await cluster.ask("DELETE", SLICES))[0] == 403
    assert (await cluster.ask("DELETE", f"{SLICES}?fieldSelector=metadata.name%3Ds"))[0] == 403
    await cluster.admin("GET", f"{SLICES}/s")


async def test_a_token_without_a_node_writes_nothing(cluster):
    cluster.token = await cluster.token_for({})
    status, document = await cluster.ask("POST", SLICES, slice_of())
    assert status == 422
    assert "the token names no node" in document["message"]


async def test_administrators_are_not_held(cluster):
    await cluster.admin("POST", SLICES, slice_of(node="n2", pool="odd"))


async def allocated(cluster, name, *results):
    """A claim that the scheduler has allocated; results are pairs of driver and node."""
    exactly = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": f"r{i}", "exactly": exactly} for i in range(len(results))]
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
    await cluster.admin("POST", CLAIMS, claim)
    devices = [
        {"request": f"r{i}", "driver": driver, "pool": node, "device": f"gpu-{i}"}
        for i, (driver, node) in enumerate(results)
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    allocation = {
        "devices": {"results": devices},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }
    reserved = [{"resource": "pods", "name": "p", "uid": "u"}]
    status = {"status": {"allocation": allocation, "reservedFor": reserved}}
    return await cluster.admin("PATCH", f"{CLAIMS}/{name}/status", status, MERGE)


def entry(driver, node, device="gpu-0"):
    return {"driver": driver, "pool": node, "device": device, "conditions": []}


async def report(cluster, name, *entries):
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    path = f"{CLAIMS}/{name}/status?fieldManager=claimd&force=true"
    return await cluster.ask("PATCH", path, head | {"status": {"devices": list(entries)}}, APPLY)


async def test_a_report_of_its_own_devices(cluster):
    """Checks that it comes, changes and goes, and that another driver's entry stays untouched."""
    await allocated(cluster, "c", (OURS, "n1"), ("nic.example.com", "n1"))
    other = {"status": {"devices": [entry("nic.example.com", "n1", "gpu-1")]}}
    await cluster.admin("PATCH", f"{CLAIMS}/c/status", other, MERGE)

    status, document = await report(cluster, "c", entry(OURS, "n1"))
    assert status == 200, document
    status, document = await report(cluster, "c", entry(OURS, "n1") | {"data": {"k": "v"}})
    assert status == 200, document
    status, document = await report(cluster, "c")
    assert status == 200, document
    assert [device["driver"] for device in document["status"]["devices"]] == ["nic.example.com"]


async def test_reports_of_other_nodes_and_drivers_are_refused(cluster):
    await allocated(cluster, "c", (OURS, "n2"), ("nic.example.com", "n1"))
    assert (await report(cluster, "c", entry(OURS, "n2")))[0] == 422
    assert (await report(cluster, "c", entry("nic.example.com", "n1", "gpu-1")))[0] == 422

    other = {"status": {"devices": [entry("nic.example.com", "n1", "gpu-1")]}}
    await cluster.admin("PATCH", f"{CLAIMS}/c/status", other, MERGE)
    nothing = {"status": {"devices": []}}
    assert (await cluster.ask("PATCH", f"{CLAIMS}/c/status", nothing, MERGE))[0] == 422


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"allocation": None}},
        {"status": {"allocation": None, "reservedFor": None}},
        {"status": {"reservedFor": None}},
        {"status": {"reservedFor": [{"resource": "pods", "name": "q", "uid": "v"}]}},
        {"metadata": {"finalizers": ["example.com/held"]}, "status": {}},
        {"metadata": {"labels": {"team": "mine"}}, "status": {}},
    ],
    ids=["deallocate", "free", "release", "reserve", "finalizer", "label"],
)
async def test_nothing_else_of_a_claim_can_be_changed(cluster, patch):
    before = await allocated(cluster, "c", (OURS, "n1"))
    status, _document = await cluster.ask("PATCH", f"{CLAIMS}/c/status", patch, MERGE)
    after = await cluster.admin("GET", f"{CLAIMS}/c")

    # A server that ignores metadata in a status says yes and changes nothing, which is as good.
    assert status in ((200, 422) if "metadata" in patch else (422,))
    assert after["status"] == before["status"]
    for part in ("labels", "finalizers"):
        assert after["metadata"].get(part) == before["metadata"].get(part)


# ---------------------------------------------------------------------- what stays possible

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE_EVENTS = "/api/v1/namespaces/default/events"


async def test_any_claim_is_read_by_its_name_and_none_is_listed(cluster):
    """Checks what docs/security.md says of a node's token: RBAC cannot limit it to claims of a node."""
    theirs = await allocated(cluster, "theirs", (OURS, "n2"))
    status, document = await cluster.ask("GET", f"{CLAIMS}/theirs")
    assert (status, document["metadata"]["uid"]) == (200, theirs["metadata"]["uid"])

    everywhere = f"{DRA}/resourceclaims"
    for path in (CLAIMS, everywhere, f"{CLAIMS}?watch=true", f"{everywhere}?watch=true"):
        assert (await cluster.ask("GET", path))[0] == 403
    # A list of one name needs only the right to that name, and tells no more than a GET.
    status, document = await cluster.ask("GET", f"{CLAIMS}?fieldSelector=metadata.name%3Dtheirs")
    assert status == 403, document
    for method, path in (("DELETE", f"{CLAIMS}/theirs"), ("DELETE", CLAIMS)):
        assert (await cluster.ask(method, path))[0] == 403
    assert (await cluster.admin("GET", f"{CLAIMS}/theirs"))["status"] == theirs["status"]


def event(about, name):
    return {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubelet",
        "reportingInstance": "n2",
        "action": "Forged",
        "reason": "Forged",
        "type": "Warning",
        "note": "forged",
        "regarding": about,
    }


async def test_events_can_be_made_about_others_and_no_event_is_read_or_changed(cluster):
    """Checks what docs/security.md says: nobody can tell from an Event who wrote it."""
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "theirs"}
    about = claim | {"namespace": "default"}
    status, document = await cluster.ask("POST", EVENTS, event(about, "forged"))
    assert status == 201, document
    assert document["reportingController"] == "kubelet"

    await cluster.admin("POST", EVENTS, event(about, "theirs"))
    for place in (EVENTS, CORE_EVENTS):
        for method, path, body, headers in (
            ("GET", place, None, {}),
            ("GET", f"{place}/forged", None, {}),
            ("PATCH", f"{place}/theirs", {"note": "other"}, MERGE),
            ("DELETE", f"{place}/theirs", None, {}),
            ("DELETE", place, None, {}),
        ):
            status, document = await cluster.ask(method, path, body, headers)
            assert status == 403, (method, path, document)
    old = {"metadata": {"name": "old"}, "involvedObject": about, "reason": "Forged"}
    assert (await cluster.ask("POST", CORE_EVENTS, old))[0] == 403


async def test_the_status_of_another_node_s_claim_stays(cluster):
    """Checks each way to write a status, on a claim that this node has no part of."""
    before = await allocated(cluster, "theirs", (OURS, "n2"))
    path = f"{CLAIMS}/theirs/status"
    devices = [entry(OURS, "n2"), entry(OURS, "n1")]
    free = before | {"status": {}}
    for listed in ([devices[0]], [devices[1]], devices):
        assert (await report(cluster, "theirs", *listed))[0] in (403, 422)
        change = {"status": {"devices": listed}}
        assert (await cluster.ask("PATCH", path, change, MERGE))[0] in (403, 422)
    assert (await cluster.ask("PUT", path, free))[0] == 403
    assert (await cluster.admin("GET", f"{CLAIMS}/theirs"))["status"] == before["status"]
