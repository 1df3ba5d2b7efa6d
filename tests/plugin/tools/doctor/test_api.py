"""A node and a cluster that agree have no findings. Then each thing is broken and repaired.

The API server is the simulated one with the shipped manifests, asked with the token of the node's pod.
"""

# size: one row per check of the API server, each next to the thing that it breaks.
import asyncio
import contextlib
import dataclasses
import email.utils
import json
import tempfile
import time
import types
from pathlib import Path

import pytest
import yaml

from claimd.kubernetes.api import versions
from claimd.kubernetes.kube import auth, client
from claimd.node.prepare import checkpoint
from claimd.node.prepared import PreparedClaim, PreparedDevice
from claimd.node.publish import slices
from claimd.sim.apiserver.server import Options, serve
from claimd.tools.doctor import api, ask, examine, gates, rights
from claimd.tools.doctor.check import Level
from claimd_devices import scan
from claimd_devices.gpu import Inventory
from tests.support import doctor_node
from tests.test_rights import ADMISSION, CLAIMS, RBAC, SLICES, Cluster

DRIVER, NODE = "gpu.claimd.dev", "n1"
ROLE = f"{RBAC}/clusterroles/claimd"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
STATUS = {
    "nodeInfo": {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.2.9"},
    "capacity": {"cpu": "8"},
    "allocatable": {"cpu": "8"},
}
# Of what the token of the node's pod may not see.
UNSEEN = {"api-server-gates", "kubelet-gates"}


def kubeconfig(folder, server):
    path = folder / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(document))
    return str(path)


class World:
    """A node that is well, with a prepared claim, in a cluster that is well."""

    def __init__(self, node, cluster):
        self.node, self.cluster = node, cluster
        self.uid = ""
        node.set(node_name=NODE)

    async def set_up(self):
        await self.status()
        inventory = scan.scan(self.node.settings.roots, self.node.settings.rules)
        for slice_ in slices.build(inventory, DRIVER, NODE)[0]:
            await self.cluster.admin("POST", SLICES, versions.slice_to_wire(slice_, "v1"))
        self.gpu = inventory.gpus[0]
        stored = await self.claim()
        self.use_claim(stored["metadata"]["uid"])

    def use_claim(self, uid):
        """Prepares the claim, and gives it to a container."""
        self.uid = uid
        self.prepare(uid)
        self.node.kubelet.runs("train", gpu=[f"claimd.dev/claim={uid}-{self.gpu.name}"])

    def forget(self, uid):
        (self.node.plugin / "claims" / f"{uid}.json").unlink()
        self.cdi_file(uid).unlink()

    async def status(self, **changes):
        path = f"/api/v1/nodes/{NODE}"
        node = await self.cluster.admin("GET", path)
        node["status"] = STATUS | changes
        await self.cluster.admin("PUT", f"{path}/status", node)

    async def claim(self):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
        stored = await self.cluster.admin("POST", CLAIMS, claim)
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": self.gpu.name}
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        return await self.cluster.admin("PUT", f"{CLAIMS}/c/status", stored)

    def prepare(self, uid):
        device = PreparedDevice(
            requests=("gpu",), pool=NODE, device=self.gpu.name, address=self.gpu.address
        )
        claim = PreparedClaim(
            namespace="default", name="c", uid=uid, prepared_at="", devices=(device,)
        )
        written = checkpoint.Checkpoint(version=1, boot_id="b", claim=claim)
        folder = self.node.plugin / "claims"
        folder.mkdir(exist_ok=True)
        (folder / f"{uid}.json").write_bytes(checkpoint.encode(written))
        self.cdi_file(uid).write_text("{}")

    def cdi_file(self, uid):
        return self.node.cdi_dir / f"claimd.dev-claim_{DRIVER}_{uid}.json"

    def kubeconfig(self, token):
        return kubeconfig(self.node.root, f"{self.cluster.api.address}/as/{token}")

    async def findings(self, token=None, **options):
        config = auth.client_config(self.kubeconfig(token or self.cluster.token), self.node.root)
        server = client.Client(config, agent="t")
        try:
            return await examine.examine_node(
                self.node.settings, server, environment={}, second_look=0, **options
            )
        finally:
            await server.close()


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with doctor_node.serving(Path(folder)) as node, serve(Options()) as server:
            cluster = Cluster(server, "claimd-system", "claimd")
            await cluster.set_up()
            world = World(node, cluster)
            await world.set_up()
            yield world


def not_well(findings):
    """Returns check and level of all findings that are not good, save the checks in UNSEEN."""
    return {
        (finding.check, finding.level.value)
        for finding in findings
        if finding.level != Level.WELL
        and not (finding.level is Level.UNSEEN and finding.check in UNSEEN)
    }


# ---------------------------------------------------------------- what is broken


@contextlib.asynccontextmanager
async def delete_object(world, path):
    """Deletes an object for a while."""
    stored = await world.cluster.admin("GET", path)
    await world.cluster.admin("DELETE", path)
    yield
    stored["metadata"] = {"name": stored["metadata"]["name"]}
    await world.cluster.admin("POST", path.rpartition("/")[0], stored)


@contextlib.asynccontextmanager
async def change_object(world, path, change):
    """Changes an object for a while."""
    before = await world.cluster.admin("GET", path)
    after = json.loads(json.dumps(before))
    change(after)
    await world.cluster.admin("PUT", path, after)
    yield
    now = await world.cluster.admin("GET", path)
    before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
    await world.cluster.admin("PUT", path, before)


def without_verb(resource, verb):
    def change(role):
        for rule in role["rules"]:
            if resource in rule["resources"] and verb in rule["verbs"]:
                rule["verbs"].remove(verb)
        role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]

    return lambda world: change_object(world, ROLE, change)


@contextlib.asynccontextmanager
async def node_status(world, **changes):
    await world.status(**changes)
    yield
    await world.status()


@contextlib.asynccontextmanager
async def settings(world, **changes):
    before = world.node.settings
    world.node.set(**changes)
    yield
    world.node.settings = before


@contextlib.asynccontextmanager
async def foreign_slice(world):
    attributes = {"resource.kubernetes.io/pciBusID": {"string": world.gpu.address}}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0", "attributes": attributes}],
    }
    await world.cluster.admin("POST", SLICES, {"metadata": {"name": "foreign"}, "spec": spec})
    yield
    await world.cluster.admin("DELETE", f"{SLICES}/foreign")


@contextlib.asynccontextmanager
async def rename_file(world, path, to=None):
    """Renames a file for a while."""
    aside = path.with_name(to or "aside")
    path.rename(aside)
    yield
    aside.rename(path)


@contextlib.asynccontextmanager
async def damage_checkpoint(world):
    path = world.node.plugin / "claims" / f"{world.uid}.json"
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    yield
    path.write_bytes(content)


@contextlib.asynccontextmanager
async def write_file(world, path):
    path.write_text("{}")
    yield
    path.unlink()


@contextlib.asynccontextmanager
async def forget_claim(world):
    """Removes checkpoint and CDI file for a while, although a container still has the GPU."""
    record = world.node.plugin / "claims" / f"{world.uid}.json"
    async with (
        rename_file(world, record),
        rename_file(world, world.cdi_file(world.uid), "other.json"),
    ):
        yield


@contextlib.asynccontextmanager
async def claim_anew(world):
    await world.cluster.admin("DELETE", f"{CLAIMS}/c")
    await world.claim()
    yield
    # As the kubelet has it prepared again.
    stored = await world.cluster.admin("GET", f"{CLAIMS}/c")
    world.forget(world.uid)
    world.use_claim(stored["metadata"]["uid"])


def slice_path(world):
    return f"{SLICES}/00000-{DRIVER}-{NODE}"


def lacks_a_device(slice_):
    slice_["spec"]["devices"].pop()


def has_more(slice_):
    slice_["spec"]["devices"].append({"name": "gpu-0000-99-00-0"})


def half_a_pool(slice_):
    slice_["spec"]["pool"] |= {"resourceSliceCount": 2, "generation": 2}


def grants_any(role):
    rule = {"apiGroups": ["claimd.dev"], "resources": ["nodes"], "verbs": ["any"]}
    role["rules"].append(rule)


def does_not_deny(binding):
    binding["spec"]["validationActions"] = ["Audit"]


ERROR, WARNING, NOTE = "error", "warning", "note"


@contextlib.asynccontextmanager
async def authorizing_scrapers(world):
    """Turns the setting on, without the role of the component."""
    before = world.node.settings
    more = {"metrics_tls": "/etc/claimd/metrics-tls", "metrics_authorization": True}
    world.node.settings = dataclasses.replace(before, **more)
    yield
    world.node.settings = before


@contextlib.asynccontextmanager
async def preparing_early(world):
    """Turns the setting on, without the role of the component."""
    before = world.node.settings
    world.node.settings = dataclasses.replace(before, prepare_before_bind="all")
    yield
    world.node.settings = before


SITUATIONS = [
    (
        lambda world: settings(world, node_name="n2"),
        {
            ("node", ERROR),
            *(
                (check, "not looked at")
                for check in (
                    "claims",
                    "slices",
                    "device-plugins",
                    "stale-capacity",
                    "runtime-version",
                    "kubelet-version",
                )
            ),
        },
        "there is no Node n2",
    ),
    (
        lambda world: node_status(
            world,
            nodeInfo={"kubeletVersion": "v1.31.9", "containerRuntimeVersion": "docker://28.1"},
        ),
        {("kubelet-version", ERROR), ("runtime-version", ERROR)},
        "v1.31.9",
    ),
    (
        lambda world: node_status(
            world,
            nodeInfo={"kubeletVersion": "v1.32.4", "containerRuntimeVersion": "containerd://2.0.1"},
        ),
        {("kubelet-version", WARNING)},
        "maxSurge: 0",
    ),
    (
        without_verb("resourceslices", "update"),
        {("rights", ERROR)},
        "claimd-system:claimd may not update resourceslices.resource.k8s.io: the published GPUs can be",
    ),
    (
        without_verb("resourceclaims/driver", "associated-node:patch"),
        {("rights", WARNING)},
        "associated-node:patch resourceclaims/driver",
    ),
    (without_verb("events", "create"), {("rights", WARNING)}, "create events.events.k8s.io"),
    (
        authorizing_scrapers,
        {("rights", WARNING)},
        "create tokenreviews.authentication.k8s.io, create subjectaccessreviews.authorization.k8s.io: "
        "every scrape",
    ),
    (
        preparing_early,
        {("rights", WARNING)},
        "list resourceclaims.resource.k8s.io, watch resourceclaims.resource.k8s.io: pods are bound",
    ),
    (
        without_verb("resourceslices", "create"),
        {("rights", ERROR), ("admission-policy", "not looked at")},
        "create resourceslices",
    ),
    (
        without_verb("nodes", "own"),
        {("rights", ERROR), ("admission-policy", WARNING)},
        "own nodes.claimd.dev",
    ),
    (
        lambda world: delete_object(world, f"{BINDINGS}/resourceslices.{DRIVER}"),
        {("admission-policy", WARNING)},
        "would let this node's token publish devices of another node",
    ),
    (
        lambda world: change_object(world, ROLE, grants_any),
        {("admission-policy", WARNING)},
        "claimd's role grants `any` on nodes of claimd.dev",
    ),
    (foreign_slice, {("other-drivers", ERROR)}, "published by the driver gpu.example.com as well"),
    (
        lambda world: node_status(
            world, capacity={"nvidia.com/gpu": "2"}, allocatable={"nvidia.com/gpu": "2"}
        ),
        {("device-plugins", ERROR)},
        "a device plugin hands out this node's GPUs of nvidia",
    ),
    (
        lambda world: node_status(
            world, capacity={"nvidia.com/gpu": "2"}, allocatable={"nvidia.com/gpu": "0"}
        ),
        {("stale-capacity", NOTE)},
        "the capacity has nvidia.com/gpu: 2",
    ),
    (
        lambda world: rename_file(world, world.cdi_file(world.uid), "other.json"),
        {("cdi-files", ERROR)},
        "there is no CDI file of default/c",
    ),
    (
        lambda world: write_file(world, world.cdi_file("another")),
        {("cdi-files", WARNING)},
        f"claimd.dev-claim_{DRIVER}_another.json",
    ),
    (damage_checkpoint, {("checkpoints", ERROR)}, "its checksum does not fit its content"),
    (
        lambda world: write_file(world, world.node.plugin / "claims/u.json.damaged-1"),
        {("checkpoints", WARNING)},
        "u.json.damaged-1 was damaged and set aside",
    ),
    (forget_claim, {("kubelet-claims", ERROR)}, "pod default/train (claim uid"),
    (
        lambda world: change_object(world, slice_path(world), lacks_a_device),
        {("slices", ERROR)},
        "not published: gpu-0000-",
    ),
    (
        lambda world: change_object(world, slice_path(world), has_more),
        {("slices", ERROR)},
        "published, and not here: gpu-0000-99-00-0",
    ),
    (
        lambda world: change_object(world, slice_path(world), half_a_pool),
        {("slices", ERROR)},
        "the pool has 1 of 2 slices",
    ),
    (
        claim_anew,
        {("claims", WARNING)},
        "default/c: it is prepared here, and was deleted and created",
    ),
]


async def test_each_thing_that_is_broken_is_named_and_nothing_else(world):
    assert not_well(await world.findings()) == set(), "well before"
    for broken, expected, words in SITUATIONS:
        async with broken(world):
            findings = await world.findings()
        assert not_well(findings) == expected, words
        reported = [finding for finding in findings if words in finding.seen]
        assert reported, words
        assert reported[0].expected, words
        assert reported[0].remedy, words


async def test_a_claim_that_is_gone_or_elsewhere(world):
    stored = await world.cluster.admin("GET", f"{CLAIMS}/c")
    stored["status"] = {}
    await world.cluster.admin("PUT", f"{CLAIMS}/c/status", stored)
    assert not_well(await world.findings()) == {("claims", WARNING)}
    await world.cluster.admin("DELETE", f"{CLAIMS}/c")
    findings = await world.findings()
    assert not_well(findings) == {("claims", WARNING)}
    (gone,) = [finding for finding in findings if finding.check == "claims"]
    assert gone.seen == (
        "default/c: it is prepared here, and there is no such claim any more, but pod default/train "
        f"still uses {world.gpu.name}"
    )
    assert "the taint claimd.dev/claim-gone keeps the others away" in gone.remedy
    assert "    kubectl delete pod -n default train" in gone.remedy.splitlines()

    # No pod uses it any more, and the driver has not collected it yet.
    world.node.kubelet.pods.clear()
    (left,) = [finding for finding in await world.findings() if finding.check == "claims"]
    assert left.seen == ("default/c: it is prepared here, and there is no such claim any more")


async def test_what_is_to_be_done_about_another_driver(world):
    async with foreign_slice(world):
        (remedy,) = [e.remedy for e in await world.findings() if e.check == "other-drivers"]
    lines = remedy.splitlines()
    assert (
        lines[0] == f"decide whose it is: default/c of claimd's claims has {world.gpu.address} now"
    )
    to_have = "spec.driver=gpu.example.com,spec.nodeName=n1"
    assert f"    kubectl delete resourceslices --field-selector {to_have}" in lines
    set_env = "    kubectl -n claimd-system set env daemonset/claimd"
    assert f"{set_env} CLAIMD_EXCLUDE={world.gpu.address}" in lines


async def test_what_is_left_to_another_beside_what_is_left_alone_already(world):
    """The remedy has the whole line for the file that the settings were read from."""
    world.forget(world.uid)
    world.node.set(exclude=("0000:ff:00.0",))
    async with foreign_slice(world):
        findings = await world.findings(settings_file="/etc/claimd/claimd.yaml")
    (reported,) = [each for each in findings if each.check == "other-drivers"]
    assert reported.seen == (
        f"{world.gpu.address} is published by the driver gpu.example.com as well, in the slice "
        "foreign as d0: it could be given to two pods"
    )
    lines = reported.remedy.splitlines()
    assert lines[0] == f"decide whose it is: no claim of claimd has {world.gpu.address} now"
    assert "in /etc/claimd/claimd.yaml on this node, for this node alone, set" in lines[-4]
    assert lines[-3] == f"    exclude: '0000:ff:00.0,{world.gpu.address}'"
    assert lines[-1].endswith("--field-selector spec.nodeName=n1")
    world.node.set(exclude=())


async def test_what_is_to_be_done_about_a_device_plugin(world):
    stands = {"nvidia.com/gpu": "2"}
    async with node_status(world, capacity=stands, allocatable=stands):
        (reported,) = [e for e in await world.findings() if e.check == "device-plugins"]
    assert reported.seen.endswith("one could be given to two pods")
    assert "daemonset/claimd CLAIMD_EXCLUDE=nvidia\n" in reported.remedy


async def test_when_a_checkpoint_was_set_aside(world):
    """The name of the file has the time, in nanoseconds since 1970."""
    path = world.node.plugin / "claims/u.json.damaged-1763900000123456789"
    async with write_file(world, path):
        (remedy,) = [e.remedy for e in await world.findings() if e.check == "checkpoints"]
    assert "before it was set aside at 2025-11-23T12:13:20Z:\n    dmesg -T |" in remedy
    assert remedy.endswith(f"    rm {path}")


async def test_what_is_to_be_done_about_slices(world):
    """The remedy has the node's name, so that people can copy it. Registration comes first."""
    async with change_object(world, slice_path(world), has_more):
        (remedy,) = [each.remedy for each in await world.findings() if each.check == "slices"]
    assert "-l app.kubernetes.io/name=claimd --field-selector spec.nodeName=n1\n" in remedy

    world.node.unready = "the kubelet has not registered us yet"
    async with delete_object(world, slice_path(world)):
        (remedy,) = [each.remedy for each in await world.findings() if each.check == "slices"]
    assert remedy == "it follows from registered: nothing to do here"


async def test_an_administrator_is_told_of_claimds_account(world):
    """An administrator has other rights. Gates and policies are read instead of tried."""
    admin = world.cluster.api.token
    findings = await world.findings(admin)
    assert not_well(findings) == {("rights", "not looked at")}, "no pod is claimd's by its labels"

    labels = {"app.kubernetes.io/name": "claimd"}
    spec = {
        "serviceAccountName": "claimd",
        "nodeName": NODE,
        "containers": [{"name": "c", "image": "i"}],
    }
    pod = {"metadata": {"name": "q", "labels": labels}, "spec": spec}
    await world.cluster.admin("POST", "/api/v1/namespaces/claimd-system/pods", pod)
    findings = await world.findings(admin)
    assert not_well(findings) == set()
    account = "system:serviceaccount:claimd-system:claimd has them all"
    assert account in [finding.seen for finding in findings]

    for break_, check, words in (
        (without_verb("nodes", "own"), "rights", "claimd may not own nodes.claimd.dev"),
        (
            lambda world: delete_object(world, f"{BINDINGS}/resourceclaims.{DRIVER}"),
            "admission-policy",
            f"the admission policy resourceclaims.{DRIVER} has no binding that denies",
        ),
        (
            lambda world: change_object(
                world, f"{BINDINGS}/resourceslices.{DRIVER}", does_not_deny
            ),
            "admission-policy",
            f"the admission policy resourceslices.{DRIVER} has no binding that denies",
        ),
        (
            lambda world: delete_object(
                world, f"{ADMISSION}/validatingadmissionpolicies/resourceclaims.{DRIVER}"
            ),
            "admission-policy",
            "no admission policy of claimd is about resourceclaims/status",
        ),
    ):
        async with break_(world):
            findings = await world.findings(admin)
        assert {name for name, _ in not_well(findings)} == {check}
        assert any(words in finding.seen for finding in findings), words


async def test_who_is_nobody_of_ours_says_nothing_of_rights(world):
    """The caller may be a pod with another service account, or a user with a kubeconfig."""
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = (await world.cluster.admin("POST", path, {"spec": {}}))["status"]["token"]
    findings = await world.findings(token)
    broken = [finding for finding in findings if finding.level in (Level.ERROR, Level.WARNING)]
    assert broken == []
    (finding,) = [finding for finding in findings if finding.check == "rights"]
    assert "we are system:serviceaccount:default:default here" in finding.seen


# ---------------------------------------------------------------- answers of other servers


@contextlib.asynccontextmanager
async def answering(world, head, body="{}"):
    """Serves the same answer to every request at the address of the API server."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        text = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        writer.write(text.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        folder = world.node.root
        path = kubeconfig(folder, f"http://127.0.0.1:{port}")
        config = auth.client_config(path, folder)
        api_client = client.Client(config, agent="t")
        yield await api.look(api_client, world.node.settings, Inventory())
        await api_client.close()


@pytest.fixture
def plain(tmp_path):
    """A node without any facts."""
    node = doctor_node.Node(tmp_path)
    return types.SimpleNamespace(node=node)


def found_of(facts, check):
    (finding,) = [f for f in api.judge(facts, Inventory()) if f.check == check]
    return finding


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0, Level.WELL, ""),
        (-3600, Level.WARNING, " s ahead of the API server's"),
        (90, Level.WARNING, "s behind the API server's"),
    ],
)
async def test_the_clock_beside_the_servers(plain, seconds, level, words):
    date = email.utils.formatdate(time.time() + seconds, usegmt=True)
    async with answering(plain, f"200 OK\r\nDate: {date}") as facts:
        finding = found_of(facts, "clock")
    assert finding.level is level
    assert words in finding.seen


async def test_an_api_server_that_is_old_and_serves_nothing(plain):
    body = '{"minor": "30+", "gitVersion": "v1.30.4-x", "versions": [{"version": "v1alpha2"}]}'
    async with answering(plain, "200 OK", body) as facts:
        assert found_of(facts, "api-version").seen == "the API server is v1.30.4-x"
        assert found_of(facts, "resource-api").seen == "the API server serves v1alpha2 of it"
    async with answering(plain, "200 OK", '{"minor": "37"}') as facts:
        assert found_of(facts, "resource-api").level is Level.ERROR
        assert found_of(facts, "api-version").level is Level.WELL


@pytest.mark.parametrize("head", ["401 Unauthorized", "500 Internal Server Error"])
async def test_an_api_server_that_gives_no_answer_is_one_finding(plain, head):
    async with answering(plain, head) as facts:
        findings = api.judge(facts, Inventory())
    assert {f.check for f in findings if f.level is Level.ERROR} == {"api-server"}
    assert {f.check for f in findings if f.level is Level.UNSEEN} == {
        check.name for check in api.CHECKS if check.name != "api-server"
    }
    assert head.split()[0] in findings[0].seen


GATES = """\
# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage of a feature.
kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 0
kubernetes_feature_enabled{name="DRAPartitionableDevices",stage="BETA"} 0
kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 0
kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1
kubernetes_feature_enabled{name="ResourceHealthStatus",stage="ALPHA"} 0
"""


async def test_gates_as_the_components_tell_of_them(plain):
    async with answering(plain, "200 OK", GATES) as facts:
        pass
    assert facts.trouble, "that is no document"
    known = {name: state == "1" for name, state in gates._GATE.findall(GATES)}
    answer = ask.Answer(value=known)
    needed = frozenset({"DRAPartitionableDevices"})
    findings = [
        *gates.judge_server(answer, needed, ()),
        *gates.judge_kubelet(answer, needed),
    ]
    assert [(f.check, f.level.value, f.seen.split(": ")[0].split()[-3]) for f in findings] == [
        ("api-server-gates", "warning", "DRADeviceTaints"),
        ("api-server-gates", "warning", "DRAPartitionableDevices"),
        ("api-server-gates", "note", "ResourceHealthStatus"),
        ("kubelet-gates", "note", "ResourceHealthStatus"),
    ], "nobody shares a GPU here"


async def test_gates_that_are_off_by_what_is_lost(world):
    """claimd may not read the metrics, so a dry run tells which gates are off."""
    world.node.set(share=("nvidia=shares:2",))
    assert not_well(await world.findings()) == set()
    async with serve(Options(profile="1.34")) as old:
        cluster = Cluster(old, "claimd-system", "claimd")
        await cluster.set_up()
        world.cluster = cluster
        findings = await world.findings()
    (finding,) = [finding for finding in findings if finding.check == "api-server-gates"]
    assert finding.level is Level.WARNING
    assert "DRAConsumableCapacity is off" in finding.seen


@pytest.mark.parametrize(
    ("path", "role_name", "table"),
    [
        ("base/rbac.yaml", "claimd", rights.RIGHTS),
        ("components/metrics-tls/rbac.yaml", "claimd-metrics-tls", rights.REVIEWS),
        (
            "components/prepare-before-bind/rbac.yaml",
            "claimd-prepare-before-bind",
            rights.EARLY_CLAIMS,
        ),
    ],
)
def test_every_right_is_in_the_role_and_every_rule_in_the_table(path, role_name, table):
    text = (Path(__file__).parents[4] / "deploy" / path).read_text()
    roles = [document for document in yaml.safe_load_all(text) if document["kind"] == "ClusterRole"]
    (role,) = [document for document in roles if document["metadata"]["name"] == role_name]
    granted = set()
    for rule in role["rules"]:
        for name in rule.get("resourceNames", [""]):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    granted |= {(group, resource, verb, name) for verb in rule["verbs"]}
    needed = {
        (right.group, right.resource, right.verb, right.name.replace(rights.DRIVER, DRIVER))
        for right in table
    }
    assert needed == granted
