"""The whole program as a process: a fake tree, a real API server of the tests', and the tests as
its kubelet.
"""

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from claimd.common import names, probe
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from claimd_devices import fake, faults, scan
from claimd_devices.gpu import Roots
from tests.support import apiserver, mounts, podresources
from tests.support.kubelet import Kubelet, calling
from tests.support.worlds import DRIVER, NODE, claim_object, result

# What `python -m claimd` runs. Its Events do not wait for a random time of up to 20 seconds first.
TOLD_AT_ONCE = (
    "from claimd import __main__; from claimd.node.report import events; "
    "events.SPREAD = 0.0; __main__.main()"
)


class Plugin:
    def __init__(self, tmp_path, api, prefix=(), **settings):
        self.tmp_path, self.api = tmp_path, api
        self.prefix = prefix
        self.settings = {
            "node-name": NODE,
            "kubelet-dir": tmp_path / "kubelet",
            "cdi-dir": tmp_path / "cdi",
            "root": tmp_path / "fake",
            "kubeconfig": tmp_path / "kubeconfig",
            "endpoint": f"unix:{tmp_path}/endpoint.sock",
            "log-format": "json",
            **settings,
        }
        self.log = tmp_path / f"log-{time.monotonic_ns()}"

    async def __aenter__(self):
        arguments = [f"--{key}={value}" for key, value in self.settings.items()]
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.prefix,
                sys.executable,
                "-c",
                TOLD_AT_ONCE,
                "run",
                *arguments,
                stdout=log,
                stderr=log,
            )
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self):
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            return await self.process.wait()

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def metrics(self):
        yes, text = await asyncio.to_thread(probe.ask, self.settings["endpoint"], "/metrics")
        assert yes
        return text.splitlines()

    async def probe(self, question):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "claimd",
            "probe",
            question,
            "--endpoint",
            self.settings["endpoint"],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode, out.decode().strip()


class World:
    def __init__(self, tmp_path, api):
        self.tmp_path, self.api = tmp_path, api
        self.kubelet = Kubelet(tmp_path / "kubelet")
        fake.write(tmp_path / "fake", fake.parse(["amd:mi300x=2", "nvidia:h100=2"]))
        self.gpus = scan.scan(Roots.in_folder(tmp_path / "fake")).gpus
        api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))

    def plugin(self, **settings):
        return Plugin(self.tmp_path, self.api, **settings)

    def claim(self, name, index=0):
        return self.api.put("resourceclaims", claim_object(name, result(self.gpus[index].name)))

    def slices(self):
        return [obj for (kind, _, _), obj in self.api.objects.items() if kind == "resourceslices"]

    def devices(self, ending):
        devices = []
        for each in self.slices():
            devices += each["spec"].get("devices") or []
        return [device for device in devices if device["name"].endswith(ending)]

    def taints(self):
        return [taint for device in self.devices("") for taint in device.get("taints", ())]

    def reasons(self):
        """Of the events so far, but for the one that says that nothing holds us here."""
        events = [obj for (kind, _, _), obj in self.api.objects.items() if kind == "events"]
        reasons = [event["reason"] for event in events]
        return [reason for reason in reasons if reason != "AdmissionPolicyMissing"]

    async def published(self):
        await apiserver.until(self.slices)

    def cdi(self):
        return sorted(os.listdir(self.tmp_path / "cdi")) if (self.tmp_path / "cdi").exists() else []


@pytest.fixture
async def world():
    # A folder of pytest's would be too long for the sockets.
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with apiserver.serve() as api:
            yield World(Path(folder), api)


async def test_from_start_to_end(world):
    async with world.plugin() as plugin:
        info = await world.kubelet.register()
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        await world.published()
        (slice_,) = world.slices()
        assert slice_["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
        assert [device["name"] for device in slice_["spec"]["devices"]] == [
            gpu.name for gpu in world.gpus
        ]
        claim = world.claim("c")
        async with calling(info.endpoint) as caller:
            answer = (await caller.prepare(claim))[claim["metadata"]["uid"]]
            assert not answer.error
            (device,) = answer.devices
            assert (device.pool_name, device.device_name, list(device.request_names)) == (
                NODE,
                world.gpus[0].name,
                ["gpu"],
            )
            (cdi,) = device.cdi_device_ids
            (file,) = world.cdi()
            spec = json.loads((world.tmp_path / "cdi" / file).read_text())
            assert cdi == f"{spec['kind']}={spec['devices'][0]['name']}"
            assert not (await caller.unprepare(claim))[claim["metadata"]["uid"]].error
            assert world.cdi() == []
        began = time.monotonic()
        assert await plugin.stop() == 0
        assert time.monotonic() - began < 12.0, "half of the grace, which nobody needs"
        assert list((world.tmp_path / "kubelet").rglob("*.sock")) == [], "no socket is left"
        assert world.slices(), "slices stay: a restart within 30 s must not be noticed"
        operations = {line["op"] for line in plugin.lines() if line.get("claim_uid")}
        assert len(operations) == 2, "prepare and unprepare each have an operation id"


async def test_a_gpu_that_the_hosts_cdi_spec_names_comes_with_it(world):
    nvidia = next(gpu for gpu in world.gpus if gpu.vendor == "nvidia")
    file = world.tmp_path / "fake/etc/cdi/nvidia.json"
    file.parent.mkdir(parents=True)
    file.write_text(
        json.dumps(
            {"kind": "nvidia.com/gpu", "devices": [{"name": nvidia.uuid, "containerEdits": {}}]}
        )
    )
    claim = world.claim("c", world.gpus.index(nvidia))
    for _ in range(2):  # the second time from the record, with the spec gone
        async with world.plugin():
            info = await world.kubelet.register()
            async with calling(info.endpoint) as caller:
                (device,) = (await caller.prepare(claim))[claim["metadata"]["uid"]].devices
        assert [id_.partition("=")[0] for id_ in device.cdi_device_ids] == [
            "nvidia.com/gpu",
            "claimd.dev/claim",
        ]
        file.unlink(missing_ok=True)


async def test_v1beta1(world):
    async with world.plugin():
        info = await world.kubelet.register()
        claim = world.claim("c")
        async with calling(info.endpoint, v1beta1, v1beta1_grpc) as caller:
            answer = (await caller.prepare(claim))[claim["metadata"]["uid"]]
            assert [device.device_name for device in answer.devices] == [world.gpus[0].name]
            assert not (await caller.unprepare(claim))[claim["metadata"]["uid"]].error


async def test_nothing_is_published_before_the_kubelet_says_registered(world):
    async with world.plugin() as plugin:
        path, _ = await world.kubelet.info()
        await world.kubelet.notify(path, error="not you")
        assert await plugin.probe("live") == (0, "ok")
        assert await plugin.probe("ready") == (1, "the kubelet has not registered us yet")
        assert world.slices() == []
        await world.kubelet.notify(path)
        await world.published()
        assert any("not you" in line["message"] for line in plugin.lines())
    assert (await plugin.probe("live"))[0] == 1


async def test_ready_when_registered_and_published(world):
    async with world.plugin() as plugin:
        await world.kubelet.register()
        await world.published()
        async with asyncio.timeout(30):
            while (await plugin.probe("ready"))[0] != 0:
                pass


async def test_not_alive_when_our_own_sockets_do_not_answer(world):
    async with world.plugin() as plugin:
        await world.kubelet.register()
        await world.published()
        process = plugin.process.pid
        limits = resource.prlimit(process, resource.RLIMIT_NOFILE)

        # Two descriptors are free: one for the probe, one for the connection to our own socket, and
        # none for gRPC to accept it.
        taken = {int(name) for name in os.listdir(f"/proc/{process}/fd")}
        free = [number for number in range(1024) if number not in taken]
        resource.prlimit(process, resource.RLIMIT_NOFILE, (free[2], limits[1]))
        endpoint = plugin.settings["endpoint"]
        async with asyncio.timeout(60):
            while (
                "our own socket" not in (await asyncio.to_thread(probe.ask, endpoint, "/livez"))[1]
            ):
                await asyncio.sleep(0.1)

        resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
        async with asyncio.timeout(60):
            while not (await asyncio.to_thread(probe.ask, endpoint, "/livez"))[0]:
                await asyncio.sleep(0.1)


async def test_killed_and_started_again_it_knows_what_it_gave(world):
    claim = world.claim("c")
    async with world.plugin() as plugin:
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            before = (await caller.prepare(claim))["uid-c"]
        plugin.process.kill()
        await plugin.process.wait()
    (file,) = world.cdi()
    spec = (world.tmp_path / "cdi" / file).read_bytes()
    (world.tmp_path / "cdi" / file).unlink()
    async with world.plugin():
        info = await world.kubelet.register()
        assert (world.tmp_path / "cdi" / file).read_bytes() == spec, (
            "restored before the socket is there"
        )
        async with calling(info.endpoint) as caller:
            assert (await caller.prepare(claim))["uid-c"] == before
            refused = world.claim("other")
            assert "default/c" in (await caller.prepare(refused))["uid-other"].error
            assert not (await caller.unprepare(claim))["uid-c"].error
    assert world.cdi() == []


async def test_the_cdi_folder_is_put_right(world):
    claim = world.claim("c")
    async with world.plugin():
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            await caller.prepare(claim)
            (file,) = world.cdi()
            good = (world.tmp_path / "cdi" / file).read_bytes()
            for damage in (
                lambda path: path.unlink(),
                lambda path: path.write_bytes(b""),
                lambda path: path.write_bytes(b"{}"),
            ):
                damage(world.tmp_path / "cdi" / file)
                await apiserver.until(
                    lambda: (
                        (world.tmp_path / "cdi" / file).exists()
                        and (world.tmp_path / "cdi" / file).read_bytes() == good
                    ),
                )


@mounts.needs_mounts
@pytest.mark.parametrize("lost", ["cdi", "kubelet/plugins/gpu.claimd.dev"])
async def test_a_folder_that_is_lost_on_the_host_ends_it_after_its_last_answer(world, lost):
    """The next container has the new folder mounted."""
    claim, waiting = world.claim("c"), world.claim("waiting", 1)
    address = world.gpus[1].address
    host = world.tmp_path / "host" / lost
    (world.tmp_path / lost).mkdir(parents=True)

    def start():
        host.mkdir(parents=True, exist_ok=True)
        prefix = mounts.prefix({world.tmp_path / lost: host})
        return world.plugin(prefix=prefix, **{"log-level": "debug"})

    async def endpoint():
        """Returns the path of the DRA socket outside of the container."""
        path = Path((await world.kubelet.register()).endpoint)
        return host / path.name if path.parent == world.tmp_path / lost else path

    faults.inject(world.tmp_path / "fake", "unplug", address)
    async with start() as plugin, calling(await endpoint()) as caller:
        assert not (await caller.prepare(claim))["uid-c"].error
        call = asyncio.ensure_future(caller.prepare(waiting))
        await apiserver.until(lambda: "has to wait" in plugin.log.read_text())
        shutil.rmtree(host)
        sentence = f"the folder {world.tmp_path}/{lost} was removed on the host"
        await apiserver.until(lambda: sentence in plugin.log.read_text())
        assert (await plugin.probe("ready"))[0] == 1
        faults.inject(world.tmp_path / "fake", "plug", address)
        assert (await call)["uid-waiting"].error, "nothing can be written"
        async with asyncio.timeout(30):
            assert await plugin.process.wait() == 1
        assert plugin.log.read_text().splitlines()[-1].startswith(f"claimd: {sentence}")

    async with start(), calling(await endpoint()) as caller:
        answers = await caller.prepare(claim, waiting)
        assert [answer.error for answer in answers.values()] == ["", ""]
        assert len(os.listdir(host)) >= 2


async def test_a_call_that_the_kubelet_gives_up_goes_on(world):
    claim = world.claim("c")
    async with world.plugin():
        info = await world.kubelet.register()
        await world.published()
        world.api.gate.clear()
        async with calling(info.endpoint) as caller:
            call = asyncio.create_task(caller.prepare(claim))
            await apiserver.until(lambda: world.api.count("GET", "resourceclaims/c"))
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()
        world.api.gate.set()
        await apiserver.until(world.cdi)


async def test_two_instances_of_a_rolling_update(world):
    old_uid, new_uid = (
        "0b9b1c5e-6f0a-4d55-8e7f-000000000001",
        "0b9b1c5e-6f0a-4d55-8e7f-000000000002",
    )
    claim = world.claim("c")
    async with world.plugin(**{"pod-uid": old_uid}) as old:
        first = await world.kubelet.register()
        assert old_uid in first.endpoint
        await world.published()
        before = json.dumps(world.slices())
        async with calling(first.endpoint) as caller:
            await caller.prepare(claim)
        async with world.plugin(
            **{"pod-uid": new_uid, "endpoint": f"unix:{world.tmp_path}/two.sock"}
        ) as new:
            registry = world.tmp_path / "kubelet" / "plugins_registry"
            await apiserver.until(lambda: len(list(registry.glob("*.sock"))) == 2)
            (path,) = registry.glob(f"*{new_uid}*")
            await world.kubelet.notify(path)
            assert await old.stop() == 0
            assert [p.name for p in registry.glob("*.sock")] == [path.name]
            async with calling(first.endpoint.replace(old_uid, new_uid)) as caller:
                assert not (await caller.prepare(claim))["uid-c"].error
                assert not (await caller.unprepare(claim))["uid-c"].error
            assert world.cdi() == []
            assert json.dumps(world.slices()) == before, "slices were not touched"
            assert await new.stop() == 0


async def test_a_stale_socket_of_the_dead_is_swept(world):
    uid = "0b9b1c5e-6f0a-4d55-8e7f-000000000001"
    async with world.plugin(**{"pod-uid": uid}) as dead:
        await world.kubelet.register()
        dead.process.kill()
        await dead.process.wait()
    sockets = [path for path in (world.tmp_path / "kubelet").rglob("*.sock") if uid in path.name]
    assert {path.parent.name for path in sockets} == {"plugins_registry", "gpu.claimd.dev"}
    async with world.plugin(**{"pod-uid": uid.replace("1", "2")}):
        await world.kubelet.register()
        assert not any(path.exists() for path in sockets)


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"node-name": ""}, 2, "node-name is not set"),
        ({"kubeconfig": "/nowhere/kubeconfig"}, 2, "/nowhere/kubeconfig"),
        ({"kubelet-dir": "/" + "k" * 100}, 2, "a unix socket's path may have 107"),
        ({"include": "gpu7"}, 2, "gpu7"),
        ({"share": "nvidia=half"}, 2, "'half' is no way to share"),
    ],
)
async def test_what_is_wrong_from_the_start_ends_it_with_a_message(world, settings, code, words):
    async with world.plugin(**settings) as plugin:
        async with asyncio.timeout(30):
            assert await plugin.process.wait() == code
        text = plugin.log.read_text()
        assert words in text
        assert "Traceback" not in text


async def test_a_second_one_without_a_pod_is_refused(world):
    async with world.plugin():
        await world.kubelet.register()
        async with world.plugin() as new_uid, asyncio.timeout(30):
            assert await new_uid.process.wait() == 1
            assert "somebody serves" in new_uid.log.read_text()


async def test_the_end_comes_with_its_grace_though_a_call_is_stuck(world):
    claim = world.claim("c")
    async with world.plugin(**{"stop-grace": "0"}) as plugin:
        info = await world.kubelet.register()
        await world.published()
        world.api.gate.clear()
        async with calling(info.endpoint) as caller:
            call = asyncio.create_task(caller.prepare(claim))
            await apiserver.until(lambda: world.api.count("GET", "resourceclaims/c"))
            began = time.monotonic()
            assert await plugin.stop() == 0
            assert time.monotonic() - began < 12.0, "a call has 35 s at least"
            answer = (await call)["uid-c"]
            assert answer.error, "the kubelet must not take silence for success"


async def test_what_was_left_behind_is_collected_once_the_kubelet_has_registered_us(world):
    claim = world.claim("c")
    async with world.plugin() as plugin:
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            assert not (await caller.prepare(claim))["uid-c"].error
        plugin.process.kill()
        await plugin.process.wait()
    world.api.delete("resourceclaims", "c", "default")
    async with (
        podresources.serve(names.pod_resources_socket(world.tmp_path / "kubelet")) as pods,
        world.plugin(**{"garbage-grace": "1"}) as plugin,
    ):
        await world.kubelet.info()
        asked = world.api.count("GET", "resourceclaims/c")
        with pytest.raises(AssertionError, match="has not come about"):
            await apiserver.until(
                lambda: pods.asked or world.api.count("GET", "resourceclaims/c") > asked, 2.5
            )
        await world.kubelet.register()
        await apiserver.until(lambda: not world.cdi())
        await apiserver.until(lambda: world.reasons() == ["ClaimCollected"])
        assert "claimd_garbage_unprepared_total 1" in await plugin.metrics()
        assert 'claimd_gpus{vendor="amd"} 2' in await plugin.metrics()


async def test_a_scrape_says_which_container_has_which_gpu(world):
    claim = world.claim("c")
    async with (
        podresources.serve(names.pod_resources_socket(world.tmp_path / "kubelet")) as pods,
        world.plugin() as plugin,
    ):
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            given = (await caller.prepare(claim))["uid-c"].devices[0].cdi_device_ids
        pods.runs("p", c=given)
        lines = await plugin.metrics()
    holder = 'namespace="default",pod="p",container="main",claim="c",share=""} 1'
    [line] = [line for line in lines if line.endswith(holder)]
    assert f'device="{world.gpus[0].name}"' in line
    assert "claimd_device_info_dropped 0" in lines


async def test_a_damaged_checkpoint_is_told_and_the_claim_prepared_anew(world):
    claim = world.claim("c")
    folder = world.tmp_path / "kubelet" / "plugins" / DRIVER / "claims"
    folder.mkdir(parents=True)
    (folder / "uid-c.json").write_text("{")
    async with world.plugin() as plugin:
        info = await world.kubelet.register()
        await apiserver.until(lambda: world.reasons() == ["RecordDamaged"])
        async with calling(info.endpoint) as caller:
            assert not (await caller.prepare(claim))["uid-c"].error
        assert world.reasons()[0] == "RecordDamaged"
        assert "claimd_records_damaged_total 1" in await plugin.metrics()
        assert "claimd_records 1" in await plugin.metrics()
        text = await plugin.metrics()
        assert 'claimd_prepare_seconds_count{result="ok"} 1' in text
        info_of_claim = [line for line in text if 'claim="c"' in line]
        assert [line.split("{")[0] for line in info_of_claim] == ["claimd_device_info"]
        assert any(line.startswith("process_resident_memory_bytes ") for line in text)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
async def test_a_checkpoint_that_cannot_be_read_is_told_and_costs_its_own_claim_alone(world):
    claim, other = world.claim("c"), world.claim("other", 1)
    async with world.plugin():
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            assert not (await caller.prepare(claim))["uid-c"].error
    file = world.tmp_path / "kubelet" / "plugins" / DRIVER / "claims" / "uid-c.json"
    fault = ["-P", str(file), "-e", "trace=openat", "-e", "inject=openat:error=EIO"]
    strace = ["strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", *fault]
    async with world.plugin(prefix=strace) as plugin:
        info = await world.kubelet.register()
        await apiserver.until(lambda: world.reasons() == ["RecordUnreadable"])
        async with calling(info.endpoint) as caller:
            assert str(file) in (await caller.prepare(claim))["uid-c"].error
            assert not (await caller.prepare(other))["uid-other"].error
            assert str(file) in (await caller.unprepare(claim))["uid-c"].error
        assert len(world.cdi()) == 2
        await world.published()
        code, said = await plugin.probe("ready")
        assert (code, str(file) in said) == (1, True), said
        assert "claimd_records_unreadable 1" in await plugin.metrics()
        told = [line for line in plugin.lines() if "logged once" in str(line)]
        assert len(told) == 1, told


async def prepare_and_kill(world, claim):
    """Returns the CDI ids of a claim that was prepared; claimd was killed and has lost its files.

    Only the kubelet still knows the claim's name.
    """
    async with world.plugin() as plugin:
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            (device,) = (await caller.prepare(claim))["uid-c"].devices
        plugin.process.kill()
        await plugin.process.wait()
    shutil.rmtree(world.tmp_path / "kubelet" / "plugins" / DRIVER / "metadata")
    return list(device.cdi_device_ids)


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_a_lost_checkpoint_is_rebuilt_while_its_pod_runs(world, is_damaged):
    claim = world.claim("c")
    ids = await prepare_and_kill(world, claim)
    checkpoint = world.tmp_path / "kubelet" / "plugins" / DRIVER / "claims" / "uid-c.json"
    if is_damaged:
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    else:
        checkpoint.unlink()
    (spec,) = (world.tmp_path / "cdi").iterdir()
    content = spec.read_bytes()

    async with (
        podresources.serve(names.pod_resources_socket(world.tmp_path / "kubelet")) as pods,
        world.plugin() as plugin,
    ):
        pods.runs("p", c=ids)
        info = await world.kubelet.register()
        await apiserver.until(lambda: "RecordRebuilt" in world.reasons())
        assert spec.read_bytes() == content
        assert checkpoint.exists()
        assert "claimd_records_rebuilt_total 1" in await plugin.metrics()
        async with calling(info.endpoint) as caller:
            (device,) = (await caller.prepare(claim))["uid-c"].devices
            assert list(device.cdi_device_ids) == ids
            assert not (await caller.unprepare(claim))["uid-c"].error
        assert world.cdi() == []
        assert list(checkpoint.parent.glob("*.damaged-*")) == []


@pytest.mark.slow
async def test_a_lost_checkpoint_that_cannot_be_rebuilt_taints_its_device(world):
    """The claim was deleted by force, and its pod runs on."""
    ids = await prepare_and_kill(world, world.claim("c"))
    (world.tmp_path / "kubelet" / "plugins" / DRIVER / "claims" / "uid-c.json").unlink()
    world.api.delete("resourceclaims", "c", "default")

    async with (
        podresources.serve(names.pod_resources_socket(world.tmp_path / "kubelet")) as pods,
        world.plugin(),
    ):
        pods.runs("p", c=ids)
        info = await world.kubelet.register()
        await apiserver.until(lambda: world.reasons() == ["RecordLost"])
        await apiserver.until(world.taints, 30.0)
        (taint,) = world.taints()
        assert (taint["key"], taint["effect"]) == ("claimd.dev/record-lost", "NoSchedule")
        assert len(world.cdi()) == 1
        async with calling(info.endpoint) as caller:
            # The pod ends.
            await caller.unprepare(
                {"metadata": {"namespace": "default", "name": "c", "uid": "uid-c"}}
            )
        assert world.cdi() == []
        await apiserver.until(lambda: not world.taints(), 30.0)


@pytest.mark.slow
async def test_a_claim_that_is_gone_while_its_pod_runs_taints_its_device(world):
    """The scheduler gives the device to another claim, which cannot be prepared."""
    claim = world.claim("c")
    uid = claim["metadata"]["uid"]

    async with world.plugin():
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            assert not (await caller.prepare(claim))[uid].error
            world.api.delete("resourceclaims", "c", "default")
            rival = world.claim("rival")
            error = (await caller.prepare(rival))[rival["metadata"]["uid"]].error
            assert "is still prepared for claim default/c" in error

            await apiserver.until(world.taints, 60.0)
            (taint,) = world.taints()
            assert (taint["key"], taint["effect"]) == ("claimd.dev/claim-gone", "NoSchedule")
            await apiserver.until(lambda: "ClaimGone" in world.reasons(), 60.0)

            # The pod ends.
            await caller.unprepare(claim)
            await apiserver.until(lambda: not world.taints(), 60.0)
            assert not (await caller.prepare(rival))[rival["metadata"]["uid"]].error


async def test_a_folder_that_cannot_be_used_is_said_at_once(world):
    (world.tmp_path / "kubelet" / "plugins" / DRIVER).touch()
    async with world.plugin() as plugin:
        async with asyncio.timeout(30):
            assert await plugin.process.wait() == 1
        assert "cannot keep anything in" in plugin.log.read_text()
        assert "Traceback" not in plugin.log.read_text()


async def test_a_prepare_under_way_is_answered_when_we_are_told_to_stop(world):
    """Its GPU is back only after the signal; meanwhile nobody else is served."""
    claim = world.claim("c")
    uid = claim["metadata"]["uid"]
    address = world.gpus[0].address
    faults.inject(world.tmp_path / "fake", "unplug", address)
    async with world.plugin(**{"log-level": "debug"}) as plugin:
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            call = asyncio.ensure_future(caller.prepare(claim))
            await apiserver.until(lambda: "has to wait" in plugin.log.read_text())
            plugin.process.send_signal(signal.SIGTERM)
            await apiserver.until(lambda: "told to stop" in plugin.log.read_text())
            faults.inject(world.tmp_path / "fake", "plug", address)
            answer = (await call)[uid]
        assert not answer.error
        assert [device.device_name for device in answer.devices] == [world.gpus[0].name]
        async with asyncio.timeout(30):
            assert await plugin.process.wait() == 0
        assert "Traceback" not in plugin.log.read_text()


async def test_a_prepare_that_outlasts_the_grace_has_an_answer_too(world):
    claim = world.claim("c")
    faults.inject(world.tmp_path / "fake", "unplug", world.gpus[0].address)
    async with world.plugin(**{"stop-grace": "1"}) as plugin:
        info = await world.kubelet.register()
        async with calling(info.endpoint) as caller:
            call = asyncio.ensure_future(caller.prepare(claim))
            await apiserver.until(lambda: "has to wait" in plugin.log.read_text())
            assert await plugin.stop() == 0
            answer = (await call)[claim["metadata"]["uid"]]
        assert answer.error == "the plugin is being stopped; ask again"
        assert "Traceback" not in plugin.log.read_text()
        assert "_handle_exceptions" not in plugin.log.read_text()
