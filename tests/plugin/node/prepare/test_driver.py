"""The driver with real files and a real API server; the hardware is what the test says it is.

# size: one world serves all of it.
"""

import asyncio
import contextlib
import json
import os
import socket
import uuid

import msgspec
import pytest

from claimd.common import budgets, durable, metrics, names
from claimd.kubernetes.kube import auth, client, resources
from claimd.node.prepare import call_time, cdi, checkpoint, claim_reports, metadata, mps, places
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd.node.report import events, status
from claimd_devices.gpu import NONE, Inventory, Libraries, Skipped
from tests.support import apiserver, drivers
from tests.support.apiserver import Fault
from tests.support.worlds import (
    DRIVER,
    NODE,
    claim_object,
    gpu,
    gpu_config,
    inventory,
    opaque,
    result,
)

FIRST, SECOND = gpu(0).name, gpu(1).name


class Hardware:
    """What the kernel shows, as the test changes it."""

    def __init__(self):
        self.last = inventory()
        self.coming = None  # what the next rescan finds

    async def rescan(self):
        if self.coming is not None:
            self.last, self.coming = self.coming, None
        return self.last


class World:
    def __init__(self, tmp_path, api):
        self.tmp_path, self.api = tmp_path, api
        self.hardware = Hardware()
        self.closing = []
        self.driver = self.instance()

    def instance(self, hardware=None):
        """Another process of the plugin on the same node."""
        kubeconfig = self.tmp_path / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "t",
                    "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
                    "clusters": [{"name": "t", "cluster": {"server": self.api.url}}],
                    "users": [{"name": "t", "user": {}}],
                }
            )
        )
        client_ = client.Client(auth.client_config(str(kubeconfig), self.tmp_path), agent="test")
        resources_ = resources.Resources(client_, DRIVER, NODE)
        reporter = status.StatusReporter(resources_, DRIVER)
        reporting = asyncio.create_task(reporter.run())
        self.closing.append((client_, reporting))
        hardware = hardware or self.hardware
        checkpoints = checkpoint.CheckpointFolder(self.tmp_path / "plugin", "boot-1")
        return drivers.build(
            resources_=resources_,
            checkpoints=checkpoints,
            specs=cdi.SpecFolder(self.tmp_path / "cdi", DRIVER),
            metadata_folder=metadata.MetadataFolder(
                self.tmp_path / "plugin/metadata", DRIVER, metadata.Published()
            ),
            reports=claim_reports.ClaimReports(
                driver=DRIVER,
                checkpoints=checkpoints,
                reporter=reporter,
                inventory=lambda: hardware.last,
            ),
            watch=hardware,
        )

    async def close(self):
        for client_, reporting in self.closing:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            await client_.close()

    def claim(self, name, *results, **more):
        return self.api.put(
            "resourceclaims", claim_object(name, *(results or (result(FIRST),)), **more)
        )

    def claim_of_pods(self, name, *pods):
        """One that was made of a template, and is reserved for these."""
        c = claim_object(name, result(FIRST))
        c["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        c["status"]["reservedFor"] = [
            {"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods
        ]
        return self.api.put("resourceclaims", c)

    async def prepare(self, *objects, by=None, patience=45.0):
        deadline = asyncio.get_running_loop().time() + patience
        answers = await drivers.prepare(by or self.driver, [ref(obj) for obj in objects], deadline)
        return answers[objects[0]["metadata"]["uid"]] if len(objects) == 1 else answers

    async def unprepare(self, *objects, by=None):
        answers = await drivers.unprepare(by or self.driver, [ref(obj) for obj in objects])
        return answers[objects[0]["metadata"]["uid"]] if len(objects) == 1 else answers

    def records(self):
        return sorted(
            n for n in os.listdir(self.tmp_path / "plugin" / "claims") if n.endswith(".json")
        )

    def specs(self):
        return sorted(os.listdir(self.tmp_path / "cdi")) if (self.tmp_path / "cdi").exists() else []

    def spec(self, obj):
        return self.tmp_path / "cdi" / names.cdi_file(DRIVER, obj["metadata"]["uid"])

    def metadata(self):
        folder = self.tmp_path / "plugin" / "metadata"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def missing_mounts(self):
        """What a CDI file names and is not there: no container could start."""
        missing = []
        for name in self.specs():
            for device in json.loads((self.tmp_path / "cdi" / name).read_bytes())["devices"]:
                for mount in device["containerEdits"].get("mounts", ()):
                    if not os.path.exists(mount["hostPath"]):
                        missing.append(mount["hostPath"])
        return missing

    def devices(self, name):
        return (
            self.api.objects["resourceclaims", "default", name].get("status", {}).get("devices", [])
        )


def ref(obj):
    meta = obj["metadata"]
    return ClaimRef(meta["namespace"], meta["name"], meta["uid"])


@pytest.fixture
async def world(tmp_path):
    async with apiserver.serve() as api:
        new_world = World(tmp_path, api)
        yield new_world
        await new_world.close()


async def test_prepare_and_unprepare(world):
    c = world.claim("c")
    prepared = await world.prepare(c)
    assert isinstance(prepared, PreparedClaim)
    assert [device.device for device in prepared.devices] == [FIRST]
    assert (world.records(), world.specs()) == (["uid-c.json"], [world.spec(c).name])
    assert await world.unprepare(c) is None
    assert (world.records(), world.specs()) == ([], [])


async def test_the_time_of_each_phase_is_counted(world):
    def counts():
        return {labels: sum(counts) for labels, counts in metrics.PREPARE_PHASES.counts.items()}

    c, before = world.claim("c"), counts()
    for expected in ([1, 1, 1], [1, 1, 2]):  # the second time only the files are looked at
        await world.prepare(c)
        phases = [("claim",), ("checkpoint",), ("files",)]
        assert [counts()[phase] - before.get(phase, 0) for phase in phases] == expected


async def test_a_repeated_prepare_gives_the_same_and_asks_nobody(world):
    c = world.claim("c")
    first = await world.prepare(c)
    asked = world.api.count("GET")
    assert [await world.prepare(c) for _ in range(3)] == [first] * 3
    assert world.api.count("GET") == asked


async def test_a_repeated_prepare_puts_the_cdi_file_right(world):
    c = world.claim("c")
    await world.prepare(c)
    good = world.spec(c).read_bytes()
    world.spec(c).unlink()
    await world.prepare(c)
    assert world.spec(c).read_bytes() == good
    world.spec(c).write_bytes(b"{}")
    await world.prepare(c)
    assert world.spec(c).read_bytes() == good


async def test_unprepare_of_the_unknown_succeeds(world):
    assert await world.unprepare(claim_object("never", result(FIRST))) is None


async def test_unprepare_needs_no_api_server(world):
    c = world.claim("c")
    await world.prepare(c)
    await world.api.stop()
    assert await world.unprepare(c) is None
    assert (world.records(), world.specs()) == ([], [])


async def test_each_claim_has_its_own_answer(world):
    good, unallocated = (
        world.claim("good"),
        world.api.put("resourceclaims", claim_object("unallocated")),
    )
    gone = claim_object("gone", result(SECOND))
    answers = await world.prepare(good, unallocated, gone)
    assert isinstance(answers["uid-good"], PreparedClaim)
    assert "not allocated" in answers["uid-unallocated"]
    assert "does not exist" in answers["uid-gone"]
    assert world.records() == ["uid-good.json"]


async def test_two_claims_of_one_call_do_not_get_one_device(world):
    answers = await world.prepare(world.claim("a"), world.claim("b"), patience=3)
    refused = [answer for answer in answers.values() if isinstance(answer, str)]
    assert len(refused) == 1
    assert "still prepared for claim default/" in refused[0]
    assert len(world.records()) == 1


async def test_a_device_just_given_back_is_waited_for(world):
    first, second = world.claim("first"), world.claim("second")
    await world.prepare(first)
    waiting = asyncio.create_task(world.prepare(second))
    await apiserver.until(lambda: world.api.count("GET", "resourceclaims/second") > 1)
    await world.unprepare(first)
    assert isinstance(await waiting, PreparedClaim)


async def test_a_claim_created_anew_is_another_claim(world):
    for name, asked, present in (("c", "b", "a"), ("d", "b", "c")):
        world.claim(name, uid=present)
        answer = await world.prepare(claim_object(name, result(FIRST), uid=asked))
        expected = f"created again: the kubelet asks for uid {asked}, the API server has {present}"
        assert expected in answer


async def test_a_uid_that_is_prepared_answers_to_its_own_name_alone(world):
    """Also while the API server is away, when only the checkpoint can answer."""
    await world.prepare(world.claim("c"))
    stranger = claim_object("other", result(FIRST), uid="uid-c")
    assert (
        await world.prepare(stranger) == "the claim with uid uid-c is default/c, not default/other"
    )
    elsewhere = claim_object("c", result(FIRST), uid="uid-c")
    elsewhere["metadata"]["namespace"] = "team"
    assert "is default/c, not team/c" in await world.prepare(elsewhere)


async def test_a_node_holds_no_more_claims_than_its_budget(world, monkeypatch):
    few = msgspec.structs.replace(budgets.CHECKPOINTS, limit=1, kept=0)
    monkeypatch.setattr(budgets, "CHECKPOINTS", few)
    first, second = world.claim("c"), world.claim("d", result(SECOND))
    assert isinstance(await world.prepare(first), PreparedClaim)
    assert "1 claims are prepared on this node, 1 of them of namespace" in await world.prepare(
        second
    )
    assert isinstance(await world.prepare(first), PreparedClaim), "who has one keeps it"
    await world.unprepare(first)
    assert isinstance(await world.prepare(second), PreparedClaim)


async def test_one_namespace_cannot_use_up_the_budget_of_the_node(world, monkeypatch):
    """The others can prepare a few claims each, and the Event names who has the most."""
    told = []
    world.driver.claims.record_event = lambda *event: told.append(event)
    small = msgspec.structs.replace(budgets.CHECKPOINTS, limit=6, kept=3, few=2)
    monkeypatch.setattr(budgets, "CHECKPOINTS", small)

    def share(namespace, number):
        share = result(FIRST, shareID=str(uuid.uuid4()))
        obj = claim_object(f"{namespace}-{number}", share)
        obj["metadata"]["namespace"] = namespace
        return world.api.put("resourceclaims", obj)

    crowd = [share("crowd", number) for number in range(4)]
    *taken, refused = [await world.prepare(claim) for claim in crowd]
    assert all(isinstance(answer, PreparedClaim) for answer in taken)
    assert refused == (
        "3 claims are prepared on this node, 3 of them of namespace crowd; the most are 6 claims, and "
        "the last 3 are for namespaces that have at most 2; delete pods of this namespace that need "
        "their claims no longer"
    )
    ((about, reason, note),) = told
    assert (about.kind, reason) == ("Node", "TooManyClaims")
    assert "Namespace crowd has more than any other" in note

    for number in range(2):
        assert isinstance(await world.prepare(share("tenant", number)), PreparedClaim)
    assert "2 of them of namespace tenant" in await world.prepare(share("tenant", 2))
    assert isinstance(await world.prepare(share("other", 0)), PreparedClaim)
    assert "6 claims are prepared" in await world.prepare(share("another", 0))

    await world.unprepare(crowd[0])
    assert isinstance(await world.prepare(share("another", 0)), PreparedClaim)
    assert "3 of them" not in await world.prepare(crowd[3])


@pytest.mark.parametrize("driver", ["d.example.com", "gpu.claimd.dev"])
async def test_parameters_that_are_nested_too_deep(world, driver):
    """They are legal. Those of another driver do not matter, our own refuse the claim."""
    deep = {"source": "FromClaim", "opaque": {"driver": driver, "parameters": "DEEP"}}
    claim = world.claim("c", config=[deep])
    nested = "[" * 200_000 + "]" * 200_000
    stored = claim | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    body = json.dumps(stored).replace('"DEEP"', nested).encode()
    world.api.fail(200, body=body, path="resourceclaims/c", method="GET", times=100)
    answer = await world.prepare(claim)
    if driver == "d.example.com":
        assert isinstance(answer, PreparedClaim)
    else:
        assert "it is no object" in answer
    assert isinstance(await world.prepare(world.claim("d", result(SECOND))), PreparedClaim)


async def test_a_device_that_is_coming_up_is_waited_for(world):
    whole, world.hardware.last = world.hardware.last, Inventory()
    world.hardware.coming = whole
    assert isinstance(await world.prepare(world.claim("c")), PreparedClaim)


async def test_short_trouble_of_the_api_server_is_waited_out(world):
    c = world.claim("c")
    world.api.fail(503, times=2, path="resourceclaims/c")
    assert isinstance(await world.prepare(c), PreparedClaim)


async def test_an_api_server_that_says_when_to_ask_again_is_not_asked_before(world):
    c = world.claim("c")
    world.api.fail(429, path="resourceclaims/c", headers={"Retry-After": "2"})
    began = asyncio.get_running_loop().time()
    assert isinstance(await world.prepare(c), PreparedClaim)
    assert asyncio.get_running_loop().time() - began >= 2


async def test_what_would_have_to_wait_for_too_long_is_told_at_once(world):
    c = world.claim("c")
    world.api.fail(503, path="resourceclaims/c", headers={"Retry-After": "50"})
    answer = await world.prepare(c)
    assert "cannot read claim default/c" in answer
    assert isinstance(await world.prepare(c), PreparedClaim)


async def test_a_look_at_the_hardware_that_hangs_does_not_keep_the_answer(world):
    """Of a claim that waits for the API server, which has nothing to do with the hardware."""
    hangs = asyncio.Event()
    world.hardware.rescan = hangs.wait
    world.api.fail(503, times=100, path="resourceclaims/c")
    async with asyncio.timeout(20):
        answer = await world.prepare(
            world.claim("c"), patience=call_time.MARGIN + call_time.SHORTEST_TRY + 0.5
        )
    assert "cannot read claim default/c" in answer

    world.driver.claims.hardware.patience = 0.01
    world.api.fail(503, path="resourceclaims/d")
    async with asyncio.timeout(20):
        answer = await world.prepare(world.claim("d", result(SECOND)))
    assert isinstance(answer, PreparedClaim), "what has come right is found all the same"


async def test_a_claim_that_another_call_is_at_is_answered_in_time(world, monkeypatch):
    c, hangs = world.claim("c"), asyncio.Event()
    monkeypatch.setattr(world.driver.claims.files.library_hook, "ensure", hangs.wait)
    stuck = asyncio.create_task(world.prepare(c))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        answer = await world.prepare(c, patience=call_time.MARGIN + 0.05)
    assert answer == (
        "an earlier call for the claim with uid uid-c has not come to its end; ask again"
    )

    deadline = asyncio.get_running_loop().time() + call_time.MARGIN + 0.05
    async with asyncio.timeout(20):
        answers = await drivers.unprepare(world.driver, [ref(c)], deadline)
    assert answers["uid-c"] == answer
    hangs.set()
    assert isinstance(await stuck, PreparedClaim), "which goes on"
    assert await world.unprepare(c) is None


async def test_what_the_api_server_said_last_is_told_and_not_that_our_time_is_up(world):
    world.api.fail(500, times=1, path="resourceclaims/c")
    world.api.faults.append(Fault(path="resourceclaims/c", passes="nothing"))
    answer = await world.prepare(
        world.claim("c"), patience=call_time.MARGIN + call_time.SHORTEST_TRY
    )
    assert "500" in answer


async def test_long_trouble_is_told_before_the_kubelet_gives_up(world):
    c = world.claim("c")
    await world.api.stop()
    answer = await world.prepare(c, patience=call_time.MARGIN + 0.5)
    assert "cannot read claim default/c" in answer
    assert "refused the connection" in answer


async def test_the_checkpoint_answers_when_the_api_server_is_away(world):
    c = world.claim("c")
    before = await world.prepare(c)
    fresh = world.instance()  # knows the claim from its checkpoint alone
    await fresh.claims.restorer.restore()
    await world.api.stop()
    assert await world.prepare(c, by=fresh) == before


async def test_an_allocation_that_changed_is_prepared_anew(world):
    await world.prepare(world.claim("c"))
    changed = world.claim("c", result(SECOND))
    fresh = world.instance()
    await fresh.claims.restorer.restore()
    prepared = await world.prepare(changed, by=fresh)
    assert [device.device for device in prepared.devices] == [SECOND]
    assert SECOND in world.spec(changed).read_text()


async def test_configuration_is_refused_by_the_name_of_the_unknown_field(world):
    answer = await world.prepare(world.claim("c", config=[opaque(gpu_config(enviroment={}))]))
    assert "enviroment" in answer
    assert world.records() == []


async def test_a_claim_for_an_mps_daemon_waits_for_the_daemon(world):
    world.hardware.last = Inventory.from_unsorted([gpu(0, vendor="nvidia")])
    world.driver.claims.mps_daemons = mps.Daemons(host=str(world.tmp_path), owner=os.getuid())
    folder = world.tmp_path / "mps"
    folder.mkdir(mode=0o755)
    claim = world.claim("c", config=[opaque(gpu_config(mps="/mps"), "FromClass")])
    answer = await world.prepare(claim)
    assert "no MPS daemon runs in /mps, which the class names: /mps/control: No such file" in answer
    assert world.records() == world.specs() == []

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "control"))
        assert isinstance(await world.prepare(claim), PreparedClaim)
    spec = world.spec(claim).read_text()
    assert "CUDA_MPS_PIPE_DIRECTORY=/mps" in spec and '"hostPath": "/mps"' in spec

    # What stands in the checkpoint says it again after a restart.
    fresh = world.instance()
    world.spec(claim).unlink()
    await fresh.claims.restorer.restore()
    assert world.spec(claim).read_text() == spec


async def test_a_checkpoint_that_cannot_be_written_is_that_claims_error(world):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    (world.tmp_path / "plugin" / "claims" / ".uid-a.json.new").mkdir(parents=True)
    answers = await world.prepare(a, b)
    assert "cannot keep the checkpoint" in answers["uid-a"]
    assert isinstance(answers["uid-b"], PreparedClaim)
    assert world.specs() == [world.spec(b).name], "no CDI file without a checkpoint"
    (world.tmp_path / "plugin" / "claims" / ".uid-a.json.new").rmdir()
    assert isinstance(await world.prepare(a), PreparedClaim)


async def test_a_cdi_file_that_cannot_be_written_is_that_claims_error_and_heals(world):
    a = world.claim("a")
    (world.tmp_path / "cdi").write_text("no folder")
    assert "cannot keep the checkpoint or the CDI file" in await world.prepare(a)
    (world.tmp_path / "cdi").unlink()
    assert isinstance(await world.prepare(a), PreparedClaim)
    assert world.specs() == [world.spec(a).name]


async def test_a_uid_that_is_no_file_name_is_refused(world):
    assert "cannot name a file" in await world.prepare(
        claim_object("c", result(FIRST), uid="../../x")
    )
    assert "cannot name a file" in await world.unprepare(
        claim_object("c", result(FIRST), uid="../../x")
    )


@pytest.mark.parametrize("odd", ["", ".", "..", "a/b", "a?b", "a\r\nb", "x" * 254, "x" * 3_000_000])
@pytest.mark.parametrize("field", ["namespace", "name"])
async def test_what_is_no_name_is_neither_asked_for_nor_told_at_length(world, field, odd):
    """A call to the socket may have megabytes in it, and what is said of it is logged."""
    claim = claim_object("c", result(FIRST))
    claim["metadata"][field] = odd
    asked = len(world.api.requests)
    answer = await world.prepare(claim)
    assert "which is no name of a claim or a namespace" in answer
    assert len(answer) < 500
    assert len(world.api.requests) == asked
    assert await world.unprepare(claim) is None, "it is not prepared"


async def test_a_long_uid_is_not_told_at_length(world):
    claim = claim_object("c", result(FIRST), uid="u" * 3_000_000)
    for answer in (await world.prepare(claim), await world.unprepare(claim)):
        assert "cannot name a file" in answer
        assert len(answer) < 500


async def test_restore_makes_the_folder_what_the_checkpoints_say(world):
    c = world.claim("c")
    await world.prepare(c)
    good = world.spec(c).read_bytes()
    world.spec(c).unlink()
    (world.tmp_path / "cdi" / names.cdi_file(DRIVER, "orphan")).write_text("{}")
    (world.tmp_path / "cdi" / "nvidia.yaml").write_text("theirs")
    await world.instance().claims.restorer.restore()
    assert world.spec(c).read_bytes() == good
    orphan = names.cdi_file(DRIVER, "orphan")
    assert world.specs() == sorted([world.spec(c).name, orphan, "nvidia.yaml"]), (
        "a pod may need a file whose checkpoint was lost: see test_lost_checkpoints"
    )


async def test_restore_takes_the_numbers_of_now(world):
    c = world.claim("c")
    await world.prepare(c)
    moved = Hardware()
    nodes = tuple(
        type(n)(path="/dev/dri/renderD199", major=226, minor=199) for n in gpu(0).nodes[:1]
    )
    moved.last = Inventory.from_unsorted([gpu(0, nodes=nodes)])
    await world.instance(moved).claims.restorer.restore()
    assert "renderD199" in world.spec(c).read_text()


async def test_a_gpu_that_was_given_as_a_whole_and_is_divided_now_stays_with_its_claim(world):
    """As after an upgrade of claimd to a version that tells the two apart: its pod goes on."""
    c = world.claim("c")
    await world.prepare(c)
    good = world.spec(c).read_bytes()
    world.spec(c).unlink()

    divided = Hardware()
    part = gpu(0, name=f"{FIRST}-xcp-0", parent=FIRST, kind="partition")
    divided.last = Inventory.from_unsorted([gpu(0, kind="divided", memory=None), part, gpu(1)])
    fresh = world.instance(divided)
    await fresh.claims.restorer.restore()
    assert world.spec(c).read_bytes() == good
    assert not isinstance(await world.prepare(c, by=fresh), str)

    late, beside = world.claim("late", result(part.name)), world.claim("beside")
    assert "is still prepared for claim default/c" in await world.prepare(late, by=fresh)
    assert "is divided and has 1 parts" in await world.prepare(beside, by=fresh)
    await world.unprepare(c, by=fresh)
    assert not isinstance(await world.prepare(late, by=fresh), str)


async def test_restore_without_the_gpu_keeps_the_checkpoint_and_no_file(world):
    c = world.claim("c")
    await world.prepare(c)
    empty = Hardware()
    empty.last = Inventory()
    fresh = world.instance(empty)
    await fresh.claims.restorer.restore()
    assert (world.records(), world.specs()) == (["uid-c.json"], [])
    answer = await world.prepare(c, by=fresh, patience=3)
    assert "not available on this node" in answer


async def test_a_gpu_that_could_not_be_read_keeps_the_file_of_its_claim(world):
    """The pod that has it goes on, and its container can start again."""
    c = world.claim("c")
    await world.prepare(c)
    unread = Hardware()
    reason = "cannot tell what it is: vendor: Input/output error"
    skipped = Skipped(address=gpu(0).address, reason=reason, is_unread=True)
    unread.last = Inventory.from_unsorted([gpu(1)], [skipped])
    fresh = world.instance(unread)
    await fresh.claims.restorer.restore()
    assert (world.records(), world.specs()) == (["uid-c.json"], [world.spec(c).name])

    unread.last = Inventory.from_unsorted([gpu(1)], [])
    await fresh.claims.restorer.restore()
    assert (world.records(), world.specs()) == (["uid-c.json"], [])


async def test_a_gpu_that_is_gone_or_another_one_is_told(world):
    c = world.claim("c")
    await world.prepare(c)
    told = []
    fresh = world.instance(Hardware())
    fresh.claims.restorer.record_event = lambda *what: told.append(what)
    for gpus, words in (
        ([], "is not available on this node"),
        ([gpu(0, uuid="x")], "is another GPU than the one"),
    ):
        fresh.claims.hardware.watch.last = Inventory.from_unsorted(gpus)
        await fresh.claims.restorer.restore()
        about, reason, note = told.pop()
        assert (about, reason) == (events.claim("default", "c", "uid-c"), "DeviceUnavailable")
        assert words in note
    fresh.claims.hardware.watch.last = inventory()
    await fresh.claims.restorer.restore()
    assert told == []


async def test_repair_after_the_folder_was_wiped(world):
    c = world.claim("c")
    await world.prepare(c)
    world.spec(c).unlink()
    (world.tmp_path / "cdi").rmdir()
    before = metrics.CDI_RESTORED.values[()]
    await world.driver.claims.restorer.repair()
    assert world.specs() == [world.spec(c).name]
    assert metrics.CDI_RESTORED.values[()] == before + 1


async def test_calls_are_counted_by_what_became_of_them(world):
    def seen():
        return [
            sum(counts.counts.get((result,), ()))
            for counts in (metrics.PREPARES, metrics.UNPREPARES)
            for result in ("ok", "refused", "failed")
        ]

    before = seen()
    c = world.claim("c")
    await world.prepare(c, world.claim("unallocated", {**result(FIRST), "pool": "elsewhere"}))
    (world.tmp_path / "plugin" / "claims" / ".uid-d.json.new").mkdir()  # the write will fail
    await world.prepare(world.claim("d", result(SECOND)))
    await world.unprepare(c)
    assert [after - was for after, was in zip(seen(), before, strict=True)] == [1, 1, 1, 1, 0, 0]


async def test_a_checkpoint_that_another_instance_took_away_meanwhile_does_not_answer(world):
    c = world.claim("c")
    await world.prepare(c)
    other = world.instance()
    await other.claims.restorer.restore()
    await world.unprepare(c)
    world.api.fail(500, path="resourceclaims/c")
    assert isinstance(await world.prepare(c, by=other), PreparedClaim)
    assert (world.records(), world.specs()) == (["uid-c.json"], [world.spec(c).name])


async def test_a_claim_that_another_instance_has_prepared_again_is_asked_for(world):
    c = world.claim("c")
    await world.prepare(c)
    other = world.instance()
    await world.unprepare(c, by=other)
    world.api.delete("resourceclaims", "c", "default")
    assert "does not exist" in await world.prepare(c)

    # It is prepared again, and then it is allocated again.
    await world.prepare(world.claim("c"), by=other)
    c = world.claim("c", result(SECOND))
    (device,) = (await world.prepare(c)).devices
    assert device.device == SECOND


async def test_a_checkpoint_that_is_taken_away_during_the_question_does_not_answer(world, caplog):
    """The claim is asked for again, and is prepared with the allocation that it has then."""
    caplog.set_level("INFO")
    c = world.claim("c")
    await world.prepare(c)
    other = world.instance()
    await other.claims.restorer.restore()
    world.api.fail(method="GET", path="resourceclaims/c", kind="silent")
    asked = world.api.count("GET", "resourceclaims/c")
    preparing = asyncio.create_task(world.prepare(c, by=other))
    await apiserver.until(lambda: world.api.count("GET", "resourceclaims/c") > asked)
    await world.unprepare(c)
    await world.api.stop()
    waits = "claim default/c was unprepared by another instance of the plugin just now"
    await apiserver.until(lambda: waits in caplog.text or preparing.done())
    await world.api.start()
    assert isinstance(await preparing, PreparedClaim)
    assert (world.records(), world.specs()) == (["uid-c.json"], [world.spec(c).name])


async def test_a_claim_of_a_crowd_waits_for_its_place_also_if_it_is_known(world):
    c = world.claim("c")
    prepared = await world.prepare(c)
    crowd, places_ = [ref(c)] * (places.AT_ONCE + 1), world.driver.places
    places_.begin(crowd)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(places.PLACES):
            await stack.enter_async_context(places_.place("default", "an earlier call"))
        again = asyncio.create_task(world.prepare(c))
        await apiserver.until(lambda: places_._waiting or again.done())
        assert not again.done()
    assert await again == prepared
    places_.end(crowd)


async def test_two_instances_refuse_each_others_devices(world):
    other = world.instance()
    await world.prepare(world.claim("a"))
    answer = await world.prepare(world.claim("b"), by=other, patience=3)
    assert "still prepared for claim default/a" in answer


async def test_an_instance_does_not_bring_back_what_the_other_unprepared(world):
    c = world.claim("c")
    await world.prepare(c)
    assert await world.unprepare(c, by=world.instance()) is None
    await world.driver.claims.restorer.repair()
    assert world.specs() == []
    assert isinstance(await world.prepare(world.claim("d"), patience=3), PreparedClaim)


async def test_the_same_claim_from_two_calls_is_prepared_once(world):
    c = world.claim("c")
    first, second = await asyncio.gather(world.prepare(c), world.prepare(c))
    assert first == second
    assert isinstance(first, PreparedClaim)


async def test_prepare_and_unprepare_of_one_claim_at_once_leave_both_or_none(world):
    c = world.claim("c")
    for _ in range(20):
        await asyncio.gather(world.prepare(c), world.unprepare(c))
        assert len(world.records()) == len(world.specs())
        await world.unprepare(c)


async def test_status_is_reported_and_taken_away(world):
    c = world.claim("c")
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    (entry,) = world.devices("c")
    assert (entry["driver"], entry["pool"], entry["device"]) == (DRIVER, NODE, FIRST)
    assert entry["conditions"][0]["type"] == "Ready"
    assert entry["data"]["pciBusID"] == "0000:41:00.0"
    await world.unprepare(c)
    await apiserver.until(lambda: not world.devices("c"))


async def test_a_claim_that_was_made_for_its_pod_goes_with_its_status(world):
    """Kubernetes deletes it when the pod has come to its end: no write is spent on it."""
    c = world.claim_of_pods("c", "p")
    prepared = await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    assert await world.unprepare(c) is None
    assert not world.driver.claims.reports.reporter.has_report(prepared), "it would never end"
    assert os.listdir(world.tmp_path / "plugin" / "claims") == []

    other = world.claim("other")
    await world.prepare(other)
    await apiserver.until(lambda: world.devices("other"))
    assert world.api.count("PATCH", "resourceclaims/c") == 1

    # And if it is prepared again all the same, it is reported as ever.
    assert await world.unprepare(other) is None
    await world.prepare(c)
    await apiserver.until(lambda: world.api.count("PATCH", "resourceclaims/c") == 2)


@pytest.mark.parametrize("pods", [(), ("p", "q")])
async def test_a_claim_that_outlives_its_pod_is_cleared(world, pods):
    """One of a group of pods, or of nobody that we know: it may be deleted later, or never."""
    c = world.claim_of_pods("c", *pods)
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    assert await world.unprepare(c) is None
    await apiserver.until(lambda: not world.devices("c"))


async def test_a_claim_of_a_group_of_pods_is_cleared(world):
    c = world.claim_of_pods("c")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    c["status"]["reservedFor"] = [group]
    world.api.put("resourceclaims", c)
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    assert await world.unprepare(c) is None
    await apiserver.until(lambda: not world.devices("c"))


async def test_what_another_instance_gave_back_for_good_is_forgotten(world):
    c = world.claim_of_pods("c", "p")
    prepared = await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    assert await world.unprepare(c, by=world.instance()) is None
    await world.driver.claims.restorer.repair()
    # Its report may have no answer yet, though it stands.
    await apiserver.until(
        lambda: not world.driver.claims.reports.reporter.has_report(prepared), timeout=20
    )


async def test_a_gpu_that_goes_and_comes_is_told_in_the_status(world):
    c = world.claim("c")
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    there = world.hardware.last

    def ready():
        return world.devices("c")[0]["conditions"][0]["status"]

    for now, expected in ((Inventory(), "False"), (there, "True")):
        world.hardware.last = now
        await world.driver.claims.restorer.restore()
        await apiserver.until(lambda expected=expected: ready() == expected)


async def test_what_was_said_of_a_claim_before_its_checkpoint_was_lost_is_cleared(world):
    """Its report is not the first that the API server hears, though it is the first of ours."""
    claim = world.claim("c")
    await world.prepare(claim)
    await apiserver.until(lambda: world.devices("c"))
    (world.tmp_path / "plugin" / "claims" / "uid-c.json").unlink()

    fresh = world.instance()
    assert isinstance(await world.prepare(claim, by=fresh), PreparedClaim)
    assert await world.unprepare(claim, by=fresh) is None
    await apiserver.until(lambda: not world.devices("c"))


async def test_what_could_not_be_cleared_is_cleared_by_the_next_process(world):
    c = world.claim("c")
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    world.api.fail(503, times=1000, method="PATCH")
    await world.unprepare(c)
    assert os.listdir(world.tmp_path / "plugin" / "claims") == ["uid-c.gone"]
    _, reporting = world.closing[0]
    reporting.cancel()  # and here it died
    world.api.faults.clear()
    await world.instance(world.hardware).claims.reports.catch_up()
    await apiserver.until(lambda: not world.devices("c"))
    await apiserver.until(lambda: not os.listdir(world.tmp_path / "plugin" / "claims"))


async def test_an_uncleared_claim_whose_file_the_disk_keeps_is_cleared_when_it_lets_go(
    world, caplog
):
    c = world.claim("c")
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    world.api.fail(503, times=1000, method="PATCH")
    await world.unprepare(c)
    debt = world.tmp_path / "plugin" / "claims" / "uid-c.gone"
    debt.unlink()
    debt.mkdir()  # cannot be unlinked
    world.driver.claims.checkpoints._fingerprint = (
        world.driver.claims.checkpoints._files.fingerprint()
    )  # as if nobody had touched it
    world.api.faults.clear()
    await apiserver.until(lambda: "could not be noted" in caplog.text)
    assert not world.devices("c")
    debt.rmdir()
    debt.touch()
    world.driver.claims.checkpoints._fingerprint = (
        world.driver.claims.checkpoints._files.fingerprint()
    )
    await apiserver.until(lambda: not debt.exists())


async def test_a_claim_without_devices_of_ours_has_no_status_to_clear(world):
    c = world.claim("c", {**result(FIRST), "driver": "other.example"})
    await world.prepare(c)
    await world.unprepare(c)
    assert os.listdir(world.tmp_path / "plugin" / "claims") == []
    await world.prepare(world.claim("d"))
    await apiserver.until(lambda: world.devices("d"))
    assert world.api.count("PATCH", "resourceclaims/c") == 0


async def test_an_unprepare_that_fails_still_reports(world):
    c = world.claim("c")
    await world.prepare(c)
    checkpoint_file = world.tmp_path / "plugin" / "claims" / "uid-c.json"
    text = checkpoint_file.read_bytes()
    checkpoint_file.unlink()
    checkpoint_file.mkdir()  # cannot be unlinked
    world.driver.claims.checkpoints._fingerprint = (
        world.driver.claims.checkpoints._files.fingerprint()
    )  # as if nobody had touched it
    assert "cannot keep the checkpoint" in await world.unprepare(c)
    checkpoint_file.rmdir()
    checkpoint_file.write_bytes(text)
    await apiserver.until(lambda: world.devices("c"))


@pytest.mark.parametrize("call", ["prepare", "unprepare"])
async def test_a_restore_in_the_middle_of_a_call_leaves_the_cdi_file_to_it(world, call):
    """The folder's sync is held up, so that the checkpoint is on its way while the glance looks."""
    c = world.claim("c")
    if call == "unprepare":
        await world.prepare(c)
    files = world.driver.claims.checkpoints._files
    with files._syncing:
        running = asyncio.create_task(getattr(world, call)(c))
        await apiserver.until(lambda: files._changes == (1 if call == "prepare" else 2))
        await world.driver.claims.restorer.restore()
        assert world.specs() == []
    await running
    assert len(world.specs()) == (1 if call == "prepare" else 0)


async def test_a_checkpoint_that_could_not_be_removed_keeps_its_cdi_file(world):
    c = world.claim("c")
    await world.prepare(c)
    await apiserver.until(lambda: world.devices("c"))
    claims_folder = world.tmp_path / "plugin" / "claims"
    (claims_folder / "uid-c.gone").mkdir()  # a file cannot take its place
    assert "cannot keep the checkpoint" in await world.unprepare(c)
    (claims_folder / "uid-c.gone").rmdir()
    await world.driver.claims.restorer.repair()
    assert len(world.specs()) == 1
    assert await world.unprepare(c) is None
    assert world.specs() == []


async def test_what_could_not_be_restored_is_restored_by_the_next_repair(world, caplog):
    c = world.claim("c")
    await world.prepare(c)
    fresh = world.instance()
    world.spec(c).unlink()
    blocked = world.tmp_path / "cdi" / durable.unfinished_name(world.spec(c).name)
    blocked.mkdir()  # the write will fail
    await fresh.claims.restorer.follow_up()
    assert "cannot restore the CDI file of claim default/c, trying again" in caplog.text
    blocked.rmdir()
    await fresh.claims.restorer.repair()
    assert world.specs() == [world.spec(c).name]
    assert not fresh.claims.restorer.is_due, "each later repair would restore again"


async def test_what_is_left_to_another_instance_is_not_due_here(world):
    restorer = world.driver.claims.restorer
    restorer.is_due, restorer.another_publishes = True, lambda: True
    await restorer.repair()
    assert not restorer.is_due, "each later repair would restore again"


async def test_what_a_start_has_followed_up_is_not_gone_over_again(world):
    await world.prepare(world.claim("c"))
    fresh = world.instance()
    await fresh.claims.restorer.follow_up()
    unfinished = world.tmp_path / "cdi" / durable.unfinished_name(world.spec(world.claim("d")).name)
    unfinished.touch()
    await fresh.claims.restorer.repair()
    assert unfinished.exists(), "a file that a call writes just then"


async def test_a_repair_with_nothing_to_do_touches_nothing(world):
    await world.prepare(world.claim("c"))
    await world.driver.claims.restorer.repair()
    reads = world.driver.claims.checkpoints.reads
    for _ in range(3):
        await world.driver.claims.restorer.repair()
    assert world.driver.claims.checkpoints.reads == reads
    assert not world.driver.claims.restorer.is_due


async def test_a_gpu_without_libraries_is_refused_where_they_are_required(world):
    lacking = Libraries(how=NONE, reason="as it was found")
    world.hardware.last = Inventory.from_unsorted([gpu(0, libraries=lacking), gpu(1)])
    world.driver.claims.require_libraries = True
    assert "as it was found" in await world.prepare(world.claim("c"))
    assert (world.records(), world.specs()) == ([], []), "nothing is left behind"

    world.driver.claims.require_libraries = False
    assert isinstance(await world.prepare(world.claim("c")), PreparedClaim)


# ---------------------------------------------------------------------- device metadata


async def test_a_prepared_claim_has_metadata_for_each_of_its_requests(world):
    c = world.claim("c", result(FIRST, "a"), result(SECOND, "b/large"))
    await world.prepare(c)
    assert world.metadata() == ["uid-c_a.json", "uid-c_b.json"]
    assert world.spec(c).read_text().count("/plugin/metadata/uid-c_") == 2
    assert world.missing_mounts() == []
    assert await world.unprepare(c) is None
    assert world.metadata() == []


@pytest.mark.parametrize("harm", ["gone", "empty", "edited", "folder gone"])
@pytest.mark.parametrize("by", ["start", "glance", "prepare"])
async def test_metadata_that_was_harmed_is_put_right(world, harm, by):
    c = world.claim("c")
    await world.prepare(c)
    folder = world.tmp_path / "plugin" / "metadata"
    (file,) = folder.iterdir()
    good = file.read_bytes()
    if harm in ("gone", "folder gone"):
        file.unlink()
        if harm == "folder gone":
            folder.rmdir()
    else:
        file.write_bytes(b"" if harm == "empty" else good.replace(b"MI300X", b"MI300Y"))

    if by == "start":
        await world.instance().claims.restorer.restore()
    elif by == "glance":
        await world.driver.claims.restorer.repair()
    else:
        await world.prepare(c)
    right = good if harm != "edited" else good.replace(b'"generation":1', b'"generation":2')
    assert file.read_bytes() == right
    assert not world.driver.claims.files.metadata.is_disturbed() or by == "start"


async def test_a_claim_that_an_older_claimd_prepared_gets_metadata_at_the_next_start(world):
    """What the kubelet was answered stays, and a container that starts again finds the file."""
    c = world.claim("c")
    before = await world.prepare(c)
    old = cdi.build(before, inventory())
    world.spec(c).write_bytes(old)
    os.unlink(world.tmp_path / "plugin" / "metadata" / "uid-c_gpu.json")
    fresh = world.instance()
    await fresh.claims.restorer.restore()
    assert (world.metadata(), world.missing_mounts()) == (["uid-c_gpu.json"], [])
    spec = world.spec(c).read_text()
    assert "/plugin/metadata/uid-c_gpu.json" in spec
    names_ = [[device["name"] for device in json.loads(text)["devices"]] for text in (old, spec)]
    assert names_[0] == names_[1]


async def test_metadata_that_no_checkpoint_names_goes_with_the_next_start(world):
    await world.prepare(world.claim("c"))
    folder = world.tmp_path / "plugin" / "metadata"
    for stray in ("uid-gone_gpu.json", "uid-c_other.json", ".uid-c_gpu.json.new"):
        (folder / stray).write_text("{}")
    await world.instance().claims.restorer.restore()
    assert world.metadata() == ["uid-c_gpu.json"]


async def test_metadata_of_another_allocation_goes_with_it(world):
    await world.prepare(world.claim("c", result(FIRST, "a"), result(SECOND, "b")))
    changed = world.claim("c", result(SECOND, "b"))
    fresh = world.instance()
    await fresh.claims.restorer.restore()
    await world.prepare(changed, by=fresh)
    assert (world.metadata(), world.missing_mounts()) == (["uid-c_b.json"], [])


async def test_metadata_that_cannot_be_written_is_that_claims_error_and_heals(world):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    blocked = world.tmp_path / "plugin" / "metadata" / ".uid-a_gpu.json.new"
    blocked.mkdir(parents=True)
    answers = await world.prepare(a, b)
    assert "cannot keep the checkpoint or the CDI file" in answers["uid-a"]
    assert isinstance(answers["uid-b"], PreparedClaim)
    assert world.specs() == [world.spec(b).name], "it would name a file that is not there"
    blocked.rmdir()
    assert isinstance(await world.prepare(a), PreparedClaim)
    assert world.missing_mounts() == []


async def test_an_unprepare_that_fails_brings_the_cdi_file_back(world):
    """The claim is still prepared, and its pod may start a container again."""
    c = world.claim("c")
    await world.prepare(c)
    checkpoints = world.driver.claims.checkpoints
    file = world.tmp_path / "plugin" / "claims" / "uid-c.json"
    content = file.read_bytes()
    file.unlink()
    file.mkdir()  # cannot be unlinked
    checkpoints._fingerprint = checkpoints._files.fingerprint()  # as if nobody had touched it
    assert "cannot keep the checkpoint" in await world.unprepare(c)
    assert world.specs() == []
    file.rmdir()
    file.write_bytes(content)
    checkpoints._fingerprint = checkpoints._files.fingerprint()
    await world.driver.claims.restorer.repair()
    assert world.specs() == [world.spec(c).name]


async def test_what_another_instance_prepared_is_looked_at(world):
    """Whether the folder was read since or not."""
    other = world.instance()
    for name, is_read in (("c", False), ("d", True)):
        device = FIRST if name == "c" else SECOND
        await world.prepare(world.claim(name, result(device)), by=other)
        if is_read:
            async with world.driver.claims.checkpoints.lock():
                pass
        assert world.driver.claims.checkpoints.is_stale() is not is_read
        world.spec(world.claim(name, result(device))).unlink()
        await world.driver.claims.restorer.repair()
        assert f"uid-{name}" in world.driver.claims.checkpoints.claims
        assert world.spec(world.claim(name, result(device))).exists()


async def test_metadata_that_cannot_be_removed_keeps_the_claim(world):
    c = world.claim("c")
    await world.prepare(c)
    file = world.tmp_path / "plugin" / "metadata" / "uid-c_gpu.json"
    file.unlink()
    file.mkdir()
    assert "cannot keep the checkpoint" in await world.unprepare(c)
    file.rmdir()
    await world.driver.claims.restorer.repair()
    assert (world.metadata(), len(world.specs())) == ([file.name], 1)
    assert await world.unprepare(c) is None
    assert (world.metadata(), world.specs(), world.records()) == ([], [], [])


async def test_metadata_of_a_gpu_that_is_gone_waits_for_it(world):
    """Nothing mounts it meanwhile, and its generation goes on when the GPU is back."""
    await world.prepare(world.claim("c"))
    whole, world.hardware.last = world.hardware.last, Inventory()
    await world.driver.claims.restorer.restore()
    assert (world.metadata(), world.specs()) == (["uid-c_gpu.json"], [])
    world.hardware.last = whole
    await world.driver.claims.restorer.restore()
    assert (world.metadata(), world.missing_mounts()) == (["uid-c_gpu.json"], [])
    assert await world.unprepare(world.claim("c")) is None
    assert world.metadata() == []


async def test_metadata_of_a_gpu_that_is_gone_may_be_harmed(world):
    """It is no reason to restore at every glance, for ever, what cannot be restored."""
    await world.prepare(world.claim("c"))
    whole, world.hardware.last = world.hardware.last, Inventory()
    await world.driver.claims.restorer.restore()
    (world.tmp_path / "plugin" / "metadata" / "uid-c_gpu.json").unlink()
    assert not world.driver.claims.files.metadata.is_disturbed()
    world.hardware.last = whole
    await world.driver.claims.restorer.restore()
    assert (world.metadata(), world.missing_mounts()) == (["uid-c_gpu.json"], [])
