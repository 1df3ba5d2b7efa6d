"""One node for a campaign: folders, fake GPUs, an API server, real `claimd run` processes, and
their kubelet's calls.

What is done to them, and what must hold then, is decided by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import grpc

from claimd.common import names, timestamps
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from claimd.sim.apiserver.storage.store import Change, watch_event
from claimd_devices import fake, scan
from claimd_devices.gpu import Roots, Rules
from tests.support import apiserver, playing_kernel, progress
from tests.support.kubelet import calling
from tests.support.worlds import DRIVER, NODE, claim_object, result

from . import strace
from .zygote import Forked

# seconds for anything that has to come about; a campaign that waits so long has found something
PATIENCE = 30.0
PF_SIGNALED = 0x400  # of the kernel: a signal has killed it, though it may not be gone yet
FOREIGN = "vendor.example-other.json"  # a CDI file of somebody else

GPUS = ("amd:mi300x=2", "nvidia:h100=2", "nvidia:l4", "iommu=1")
VFIO_GPU = "10de:27b8"  # which model is for virtual machines
FOR_MACHINES = 4  # the index of the one that there is

LONG_AGO = 1_767_225_600  # seconds since 1970
READY, FAILED = names.PREPARED_CONDITION, names.PREPARE_FAILED_CONDITION
Object = dict[str, Any]
Process = asyncio.subprocess.Process | Forked
CONSUMED = {"memory": "20Gi"}  # by each share
CONSUMED_BYTES = 20 << 30
Devices = tuple[tuple[str, tuple[str, ...]], ...]  # device and CDI ids, as a kubelet gets them


class Broken(Exception):
    """A promise was not kept; the message says which."""


class World:
    def __init__(
        self, folder: Path, api: apiserver.ApiServer, kernel: playing_kernel.PlayingKernel
    ) -> None:
        self.folder, self.api, self.kernel = folder, api, kernel
        self.kubelet, self.cdi = folder / "kubelet", folder / "cdi"
        self.plugin = names.plugin_folder(self.kubelet, DRIVER)
        for path in (self.kubelet / "plugins_registry", self.kubelet / "plugins", self.cdi):
            path.mkdir(parents=True)
        (self.cdi / FOREIGN).write_text("{}")
        self.gpus = scan.scan(Roots.in_folder(folder / "fake"), Rules(vfio_bind=(VFIO_GPU,))).gpus
        assert self.gpus[FOR_MACHINES].kind == "vfio"
        self.unclaimed = kernel.state()
        api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(cluster))
        self.running: list[Claimd] = []
        self.lies: list[str] = []
        self.waited_for: set[str] = set()  # claims whose pods the scheduler has not bound
        self._allocations = 0  # of claims that are prepared early; each has a second of its own
        api.listen(self._look_for_lies)

    def claim(self, name: str, index: int) -> Object:
        """A claim that the scheduler gave the GPU with this index, or a share of it."""
        more: Object = {}
        if is_share(name):
            more = {"shareID": share_id(name), "consumedCapacity": CONSUMED}
        if is_early(name):
            more = {"bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
        given = result(self.gpus[index].name, **more)
        claim = claim_object(name, given)
        if is_early(name):
            self._allocations += 1
            at = timestamps.rfc3339(LONG_AGO + self._allocations)
            claim["status"]["allocation"]["allocationTimestamp"] = at
        return self.api.put("resourceclaims", claim)

    def deallocate(self, name: str) -> None:
        """The scheduler takes the allocation back, and the conditions with it."""
        self.api.put("resourceclaims", claim_object(name))

    def has_condition(self, name: str, *types: str) -> bool:
        """Returns True if a device of the claim has one of these conditions, and it is true."""
        return any(
            condition["type"] in types and condition["status"] == "True"
            for entry in self.status(name)
            for condition in entry["conditions"]
        )

    def _look_for_lies(self, change: Change) -> None:
        """Notes a claim that is reported as prepared while its CDI file is missing."""
        event = watch_event(change)
        if event is None or change.resource.plural != "resourceclaims":
            return
        claim = event[1]
        for entry in claim.get("status", {}).get("devices") or ():
            for condition in entry["conditions"]:
                uid = claim["metadata"]["uid"]
                path = self.cdi / names.cdi_file(DRIVER, uid)
                says_ready = condition["type"] == READY and condition["status"] == "True"
                is_waited_for = claim["metadata"]["name"] in self.waited_for
                if says_ready and is_waited_for and not path.exists():
                    self.lies.append(f"{uid} is called ready without a CDI file")

    def status(self, name: str) -> list[Object]:
        claim = self.api.objects["resourceclaims", "default", name]
        devices: list[Object] = claim.get("status", {}).get("devices", [])
        return devices

    def published(self) -> bool:
        return any(resource == "resourceslices" for resource, _, _ in self.api.objects)

    async def start(self, pod_uid: str = "", tracer: Iterable[str] = ()) -> Claimd:
        """A process that has just been started; `tracer` is a command line to put before it."""
        for dead in [claimd for claimd in self.running if claimd.dead]:
            # until its last thread is gone it holds its files and locks, which no real start meets
            await dead.kill()
            self.running.remove(dead)
        self.kernel.finish()  # what the dead have begun
        self.running.append(
            claimd := Claimd(self, await self._launch(self._flags(pod_uid), tracer), pod_uid)
        )
        claimd.traced = bool(tracer)
        return claimd

    def _flags(self, pod_uid: str) -> list[str]:
        settings = {
            "node-name": NODE,
            "kubelet-dir": self.kubelet,
            "cdi-dir": self.cdi,
            "root": self.folder / "fake",
            "kubeconfig": self.folder / "kubeconfig",
            "log-format": "text",
            "vfio-bind": VFIO_GPU,
            "prepare-before-bind": "slow",
            **({"pod-uid": pod_uid} if pod_uid else {}),
        }
        return [f"--{key}={value}" for key, value in settings.items()]

    async def _launch(self, flags: Iterable[str], tracer: Iterable[str]) -> Process:
        with (self.folder / "log").open("ab") as file:
            return await asyncio.create_subprocess_exec(
                *tracer,
                sys.executable,
                "-m",
                "claimd",
                "run",
                *flags,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )

    async def end(self) -> None:
        for claimd in self.running:
            await claimd.kill()

    def check_drivers(self, holders: Collection[str], others: Collection[str]) -> None:
        """Broken unless vfio-pci has the GPU of these holders, and its driver has it if it is nobody's.
        While one of the `others` is about to get it or to give it back, either may be.
        """
        self.kernel.finish()
        state = self.kernel.state()
        has_it = {
            driver for address, (driver, _) in state.items() if self._is_for_machines(address)
        }
        if holders and has_it != {"vfio-pci"}:
            raise Broken(f"{', '.join(holders)} is prepared, and its GPU is bound to {has_it}")
        if not holders and not others and state != self.unclaimed:
            raise Broken(f"nobody has the GPU for machines, and it is {state}")

        for uid in holders:
            if '"/dev/vfio/' not in (self.cdi / names.cdi_file(DRIVER, uid)).read_text():
                raise Broken(f"the CDI file of {uid} names no node of vfio-pci's")

    def check_shares(self, prepared: Iterable[str]) -> None:
        """Broken unless the CDI files of those that have a share tell how much."""
        for name in filter(is_share, prepared):
            variable = f"_{share_id(name)[:8].upper()}_MEMORY={CONSUMED_BYTES}"
            if variable not in (self.cdi / names.cdi_file(DRIVER, f"uid-{name}")).read_text():
                raise Broken(f"the CDI file of {name} does not tell that it has {CONSUMED}")

    def reboot(self) -> None:
        """Every process is dead by now."""
        self.kernel.finish()
        self.kernel.reboot(str(uuid.uuid4()))

    def _is_for_machines(self, address: str) -> bool:
        return address[:-1] == self.gpus[FOR_MACHINES].address[:-1]

    def forget(self) -> None:
        """What the API server keeps of each request and event would fill the memory of a long
        campaign.
        """
        self.api.requests.clear()
        self.api.log.clear()

    def clean(self) -> None:
        """Forgets all claims, for the next point after one that failed."""
        shutil.rmtree(self.plugin, ignore_errors=True)
        for path in self.cdi.iterdir():
            path.unlink()
        (self.cdi / FOREIGN).write_text("{}")
        self.kernel.finish()
        self.kernel.rebind()

    def tail(self, lines: int = 15) -> str:
        """The end of what claimd logged."""
        with contextlib.suppress(OSError):
            return "\n".join(
                (self.folder / "log").read_text(errors="replace").splitlines()[-lines:]
            )
        return ""


class Claimd:
    """One `claimd run`, and its kubelet's view of it."""

    def __init__(self, world: World, process: Process, pod_uid: str) -> None:
        self.process, self.pod_uid, self.traced = process, pod_uid, False
        self._registration = names.registration_socket(world.kubelet, DRIVER, pod_uid)
        self._socket = names.dra_socket(world.kubelet, DRIVER, pod_uid)

    @property
    def code(self) -> int | None:
        """As a process's return code. The kernel says it before the tracer has taken note of the
        end.
        """
        if self.process.returncode is not None:
            return self.process.returncode
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if fields[0] in "ZX":
            return os.waitstatus_to_exitcode(int(fields[-1]))
        return -signal.SIGKILL if int(fields[6]) & PF_SIGNALED else None

    @property
    def dead(self) -> bool:
        # It is no process of the kernel's any more a moment before asyncio says its code.
        return self.code is not None or not Path(f"/proc/{self.process.pid}").exists()

    async def until(self, fact: Callable[[], object], what: str) -> bool:
        """Waits for the fact; False if the process dies first."""
        patience = progress.Patience(PATIENCE)
        while not fact():
            if self.dead:
                return False
            if patience.over():
                raise Broken(f"{what} has not come about in {PATIENCE:g} s")
            await asyncio.sleep(0.005)
        return True

    async def register(self) -> bool:
        """As the kubelet does when a socket appears. False if the process dies before it is
        registered.
        """
        if not await self.until(lambda: _listens(self._registration), "the registration socket"):
            return False
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._registration}") as channel:
                stub = registration_grpc.RegistrationStub(channel)
                await stub.GetInfo(registration.InfoRequest(), timeout=5)
                await stub.NotifyRegistrationStatus(
                    registration.RegistrationStatus(plugin_registered=True, error=""), timeout=5
                )
        except grpc.RpcError:
            await self._unanswered()  # a kubelet would come again; whoever asked sees to that
            return False
        return True

    async def prepare(
        self, *claims: Object, timeout: float = 30.0
    ) -> dict[str, Devices | str] | None:
        """By claim name: what was given, or the error. None if no answer came."""
        try:
            async with calling(str(self._socket)) as caller:
                answers = await caller.prepare(*claims, timeout=timeout)
        except grpc.RpcError:
            await self._unanswered()
            return None
        return {name: _given(answers[uid]) for name, uid in _named(claims)}

    async def unprepare(self, *claims: Object) -> dict[str, str] | None:
        """By claim name: the error, or "". None if no answer came."""
        try:
            async with calling(str(self._socket)) as caller:
                answers = await caller.unprepare(*claims, timeout=30)
        except grpc.RpcError:
            await self._unanswered()
            return None
        return {name: answers[uid].error for name, uid in _named(claims)}

    async def _unanswered(self) -> None:
        """The connection is cut a moment before the end of the process is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while not self.dead:
                    await asyncio.sleep(0.005)

    async def kill(self) -> None:
        if not self.dead:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        while self.process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await self.process.wait()
                    return
            # Now and then strace sleeps over the end of a process with many threads, which then
            # cannot end.
            with contextlib.suppress(ProcessLookupError):
                if tracer := strace.tracer_of(self.process.pid):
                    os.kill(tracer, signal.SIGKILL)

    async def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


def expected(world: World, name: str, index: int) -> Devices:
    """What a claim that has the GPU with this index must be given, ever again."""
    device = world.gpus[index].name
    share = share_id(name) if is_share(name) else None
    return ((device, (names.cdi_id(f"uid-{name}", device, share),)),)


def is_share(name: str) -> bool:
    """Whether the claim of this name is for a share of its GPU."""
    return name.startswith("share-")


def is_early(name: str) -> bool:
    """Whether the scheduler waits for the claim of this name before it binds the pod."""
    return name.startswith("early")


def share_id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def _given(answer: api_pb2.NodePrepareResourceResponse) -> Devices | str:
    return answer.error or tuple(
        (device.device_name, tuple(device.cdi_device_ids)) for device in answer.devices
    )


def _named(claims: Iterable[Object]) -> list[tuple[str, str]]:
    return [(claim["metadata"]["name"], claim["metadata"]["uid"]) for claim in claims]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.asynccontextmanager
async def world(kind: Callable[..., World] = World) -> AsyncIterator[World]:
    """A folder of few letters, since a socket's path has room for 107; in memory where the machine
    has such a place.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="f-", dir=memory) as folder:
        tree = Path(folder) / "fake"
        fake.write(tree, fake.parse(GPUS))
        async with apiserver.serve() as api:
            with playing_kernel.playing(tree) as kernel:
                gpu = scan.scan(Roots.in_folder(tree)).gpus[FOR_MACHINES].address
                kernel.add_neighbour(
                    f"{gpu[:-1]}1", of=gpu, driver=playing_kernel.SOUND, class_code="040300"
                )
                new_world = kind(Path(folder), api, kernel)
                try:
                    yield new_world
                finally:
                    await new_world.end()
