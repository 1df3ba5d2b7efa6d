"""A node with two instances of claimd whose calls can be made to fail, its kubelet, and the rule that
must hold after each error.

The rule: claimd answers again after the fault, or it has ended with a sentence, or /livez is red. No
device goes to two claims. No running pod's CDI file is removed. No taint is not about a GPU. Which
call fails when is decided by `errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import grpc

from claimd.common import names, probe
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from claimd.node import folder_watch
from claimd_devices import uevents
from tests.support import apiserver, progress
from tests.support.kubelet import Caller
from tests.support.playing_kernel import PlayingKernel
from tests.support.worlds import DRIVER, NODE

from . import observer, shim
from .scenarios import NEW, OLD
from .world import FOR_MACHINES, Broken, Claimd, Devices, Object, Process, World, expected
from .zygote import Zygote

PODS = (OLD, NEW)  # the uids of the two instances
BRIEF = 2.05  # seconds: a call with so little time is tried once, and its refusal comes at once
CALL = 10.0  # seconds for a call that has to succeed
PATIENCE = 20.0  # seconds until claimd answers again; then /livez is asked
LIVE = 40.0  # seconds until /livez is red
END = 15.0  # seconds for the end after SIGTERM
SOON = 0.4  # seconds that are waited for work in the background to meet the fault

# Options of a channel that has nothing to do with the channels before it.
_QUICKLY = (("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 20))

# The last words of a claimd that cannot go on.
SENTENCE = re.compile(r"^claimd: .|cannot go on without it", re.MULTILINE)

# gRPC crashes if it cannot start a thread. The log shows where.
CRASH = re.compile(
    r"^Fatal Python error: (Segmentation fault|Aborted)$.*grpc/", re.MULTILINE | re.DOTALL
)
CRASHED = (-signal.SIGSEGV, -signal.SIGABRT)

Kind = Literal["prepare", "unprepare"]


class ErrorWorld(World):
    """A world whose processes are forked with the shim. `page` is that of the next one."""

    def __init__(
        self, folder: Path, api: apiserver.ApiServer, kernel: PlayingKernel, zygote: Zygote
    ) -> None:
        super().__init__(folder, api, kernel)
        self._zygote = zygote
        config = json.loads((folder / "kubeconfig").read_text())
        # Nothing is spoilt on the way, so the proxy is left out.
        config["clusters"][0]["cluster"]["server"] = api.direct_url
        (folder / "kubeconfig").write_text(json.dumps(config))
        trees = {
            self.plugin: "checkpoints",
            self.kubelet / "plugins_registry": "kubelet",
            self.kubelet / "pod-resources": "kubelet",
            self.cdi: "cdi",
            folder / "fake": "hardware",
        }
        self.pages = {pod: shim.Page(folder / f"page-{pod}", trees) for pod in PODS}

    def endpoint(self, pod_uid: str) -> str:
        return f"unix:{self.folder}/{pod_uid[-1]}"

    def _flags(self, pod_uid: str) -> list[str]:
        more = {"endpoint": self.endpoint(pod_uid), "stop-grace": 1, "health-interval": 5}
        return [*super()._flags(pod_uid), *(f"--{key}={value}" for key, value in more.items())]

    async def _launch(self, flags: Iterable[str], tracer: Iterable[str]) -> Process:
        flags = list(flags)
        pod_uid = next(flag for flag in flags if flag.startswith("--pod-uid=")).partition("=")[2]
        page = self.pages[pod_uid].path
        return await self._zygote.start(flags, self.folder / "log", page)


class Removals:
    """Tells which files were removed from a folder, also those that are back by now."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        mask = folder_watch.DELETE | folder_watch.MOVED_FROM
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))

    def close(self) -> None:
        os.close(self._descriptor)

    def take(self) -> set[str]:
        """Returns the names of files that were removed since the last call."""
        removed = set()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                while data:
                    _, _, _, length = struct.unpack_from("iIII", data)
                    removed.add(os.fsdecode(data[16 : 16 + length].rstrip(b"\0")))
                    data = data[16 + length :]
        return removed


class Node:
    """Two instances, and what their kubelet knows. The methods raise Broken where the rule is."""

    def __init__(self, world: ErrorWorld) -> None:
        self.world = world
        self.instances: dict[str, Claimd] = {}
        self.publisher = ""  # the pod whose instance the kubelet has registered last

        # By the index of the GPU: the claim that was answered with it. And the CDI files of claims
        # whose pods run.
        self.holders: dict[int, str] = {}
        self.running: dict[str, bytes] = {}

        self.ends: list[str] = []  # how instances ended or were judged, since the last `take_ends`
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._numbers = itertools.count(1)
        self._looks = itertools.count()
        self._removals = Removals(world.cdi)
        self._log_read = 0

    async def close(self) -> None:
        for pod in list(self._channels):
            await self._hang_up(pod)
        await self.world.end()
        self._removals.close()

    async def _hang_up(self, pod: str) -> None:
        if (channel := self._channels.pop(pod, None)) is not None:
            await channel.close()

    # ------------------------------------------------------------------ instances

    async def start(self, pod: str) -> None:
        """Starts an instance and registers it. An instance that is judged is started once more."""
        self.instances[pod] = await self.world.start(pod)
        await self.registered(pod)

    async def registered(self, pod: str) -> None:
        """Returns when the kubelet has registered the instance, or the one that replaces it."""

        async def register() -> bool:
            return await self.try_to_register(pod)

        await self.again(pod, register, "no registration")
        self.publisher = pod

    async def try_to_register(self, pod: str) -> bool:
        path = names.registration_socket(self.world.kubelet, DRIVER, pod)
        if not path.exists():
            return False
        with contextlib.suppress(grpc.RpcError):
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                stub = registration_grpc.RegistrationStub(channel)
                await stub.GetInfo(registration.InfoRequest(), timeout=5)
                status = registration.RegistrationStatus(plugin_registered=True, error="")
                await stub.NotifyRegistrationStatus(status, timeout=5)
            return True
        return False

    async def restart(self, pod: str) -> None:
        """What the kubelet does with a container that has ended, or whose /livez is red. It registers
        the new one as soon as it can.
        """
        self.world.pages[pod].disarm()
        await self._hang_up(pod)
        await self.instances[pod].kill()
        self.instances[pod] = await self.world.start(pod)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self.instances[pod].dead:
            if await self.try_to_register(pod):
                self.publisher = pod
                return
            await asyncio.sleep(0.02)

    async def stop(self, pod: str, limit: float = END) -> None:
        """Ends an instance by SIGTERM."""
        claimd = self.instances[pod]
        with contextlib.suppress(ProcessLookupError):
            claimd.process.send_signal(15)
        patience = progress.Patience(limit)
        while not claimd.dead:
            if patience.over():
                await claimd.kill()
                raise Broken(f"it did not end within {limit:g} s of SIGTERM")
            await asyncio.sleep(0.005)
        await claimd.kill()  # until its code is known
        if claimd.code != 0:
            self.ends.append(self._judge_end(claimd))

    def _judge_end(self, claimd: Claimd) -> str:
        """Returns how an instance has ended. Raises Broken if it did without a sentence."""
        said = self._log_tail()
        if claimd.code in CRASHED and CRASH.search(said):
            end = "crashed in gRPC"
        elif claimd.code == 1 and SENTENCE.search(said):
            end = "ended with a sentence"
        else:
            raise Broken(f"it has ended with {claimd.code}, without a sentence")
        self._log_read = os.path.getsize(self.world.folder / "log")
        return end

    def take_ends(self) -> list[str]:
        ends, self.ends = self.ends, []
        return ends

    # ------------------------------------------------------------------ the kubelet's calls

    async def call(
        self, pod: str, kind: Kind, name: str, index: int, timeout: float
    ) -> Devices | str | None:
        """Returns what was prepared or () for an unprepare, or the error; None without an answer."""
        meta = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
        if pod not in self._channels:
            socket = names.dra_socket(self.world.kubelet, DRIVER, pod)
            self._channels[pod] = grpc.aio.insecure_channel(f"unix:{socket}", options=_QUICKLY)
        caller = Caller(self._channels[pod])
        try:
            ask = caller.prepare if kind == "prepare" else caller.unprepare
            answer = (await ask({"metadata": meta}, timeout=timeout))[f"uid-{name}"]
        except grpc.RpcError:
            await self._hang_up(pod)
            return None
        if answer.error:
            if "unexpected trouble" in answer.error:
                raise Broken(f"an error was unexpected: {answer.error}")
            return str(answer.error)
        if kind == "unprepare":
            return ()
        given = tuple((d.device_name, tuple(d.cdi_device_ids)) for d in answer.devices)
        if given != (right := expected(self.world, name, index)):
            raise Broken(f"claim {name} was given {given}, not {right}")
        return given

    async def again(self, pod: str, ask: Callable[[], Awaitable[bool]], what: str) -> None:
        """Asks until it succeeds. An instance that has ended, or is red, is replaced."""
        for _ in range(3):
            end = await self._wait_for(pod, ask)
            if not end:
                return
            self.ends.append(end)
            await self.restart(pod)
        raise Broken(f"{what}, and three more instances did not help")

    async def _wait_for(self, pod: str, ask: Callable[[], Awaitable[bool]]) -> str:
        """Returns "" when what is asked for succeeds, or how the instance has ended meanwhile."""
        claimd = self.instances[pod]
        began = time.monotonic()
        said = ""
        while time.monotonic() < began + PATIENCE + LIVE:
            if claimd.dead:
                await claimd.kill()  # until its code is known
                return self._judge_end(claimd)
            if await ask():
                return ""
            if time.monotonic() > began + PATIENCE:
                address = self.world.endpoint(pod)
                is_live, said = await asyncio.to_thread(probe.ask, address, "/livez")
                if not is_live and not claimd.dead:
                    return "live was red"
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.02)
        raise Broken(f"it does not answer again, and /livez says {said!r}")

    async def reconnect(self) -> None:
        """The next calls are on new connections."""
        for pod in list(self._channels):
            await self._hang_up(pod)

    def new_claim(self, index: int) -> str:
        name = f"c{next(self._numbers)}"
        self.world.claim(name, index)
        return name

    async def settle(self, pods: dict[str, str], index: int, answers: dict[str, Any]) -> str:
        """Asks for claims that compete for a GPU until one has it, and gives the others back.

        `pods` says by claim which instance is asked. Returns the name of the claim that has the GPU.
        """
        given = [name for name, answer in answers.items() if isinstance(answer, tuple)]
        if len(given) > 1:
            raise Broken(f"GPU {index} was given to {' and '.join(given)}")
        if not given:
            # One of them may have been prepared without an answer.
            holder = ""

            async def ask() -> bool:
                nonlocal holder
                for name, pod in pods.items():
                    if isinstance(await self.call(pod, "prepare", name, index, CALL / 2), tuple):
                        holder = name
                        return True
                return False

            await self.again(next(iter(pods.values())), ask, "no claim is prepared")
            given = [holder]
        for name, pod in pods.items():
            if name not in given:
                if next(self._looks) % 3 == 0:
                    await self._refused(pod, name, index, given[0])
                await self.unprepared(pod, name, index)
        self.holders[index] = given[0]
        if index != FOR_MACHINES:
            self.running[given[0]] = self._cdi_file(given[0])
        elif not self.path(given[0]).exists():
            raise Broken(f"{given[0]} is prepared without a CDI file")
        return given[0]

    async def _refused(self, pod: str, name: str, index: int, holder: str) -> None:
        answer = await self.call(pod, "prepare", name, index, BRIEF)
        if isinstance(answer, tuple):
            raise Broken(f"GPU {index} of {holder} was given to {name}")

    async def unprepared(self, pod: str, name: str, index: int) -> None:
        async def ask() -> bool:
            return isinstance(await self.call(pod, "unprepare", name, index, CALL), tuple)

        await self.again(pod, ask, f"{name} cannot be unprepared")
        self.world.api.delete("resourceclaims", name, "default")

    async def still_prepared(self, pod: str, index: int) -> None:
        """The claim that has the GPU is answered again, with the same devices."""
        name = self.holders[index]

        async def ask() -> bool:
            return isinstance(await self.call(pod, "prepare", name, index, CALL), tuple)

        await self.again(pod, ask, f"{name}, which is prepared, is not answered")

    def path(self, name: str) -> Path:
        return self.world.cdi / names.cdi_file(DRIVER, f"uid-{name}")

    def _cdi_file(self, name: str) -> bytes:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            raise Broken(f"the CDI file of {name}, which is prepared, is not there") from None

    # ------------------------------------------------------------------ the rule

    def check(self) -> None:
        """Raises Broken for each part of the rule that can be seen at any time."""
        removed = self._removals.take()
        for name in self.running:
            if self.path(name).name in removed:
                raise Broken(f"the CDI file of {name}, whose pod runs, was removed")
            self._cdi_file(name)

        for _, resource, obj in self.world.api.log:
            for device in obj["spec"].get("devices") or () if resource == "resourceslices" else ():
                if taints := device.get("taints"):
                    raise Broken(f"{device['name']} was tainted: {taints}")
        self.world.forget()

        if "Traceback" in (said := self._log_tail()):
            raise Broken("an error gave a stack trace:\n" + said[said.index("Traceback") :][:3000])
        self._log_read = os.path.getsize(self.world.folder / "log")
        self._check_recorded()

    def _check_recorded(self) -> None:
        """Raises Broken unless who was answered is recorded, and each device once at most."""
        recorded: dict[str, str] = {}  # by device: the claim
        for path in sorted((self.world.plugin / "claims").glob("*.json")):
            with contextlib.suppress(FileNotFoundError, ValueError):
                for device in json.loads(path.read_text())["claim"].get("devices", ()):
                    if (other := recorded.setdefault(device["device"], path.stem)) != path.stem:
                        raise Broken(f"{other} and {path.stem} are recorded with one device")
        for name in self.holders.values():
            if f"uid-{name}" not in recorded.values():
                raise Broken(f"the checkpoint of {name}, which is prepared, is not there")

    def _log_tail(self) -> str:
        with (self.world.folder / "log").open("rb") as log:
            log.seek(self._log_read)
            return log.read().decode(errors="replace")

    def slices(self) -> list[Object]:
        """Returns the devices that are published, with their attributes."""
        devices = []
        for (resource, _, _), obj in self.world.api.objects.items():
            spec = obj.get("spec", {})
            if resource == "resourceslices" and spec.get("nodeName") == NODE:
                devices += spec.get("devices") or ()
        return sorted(devices, key=lambda device: str(device["name"]))

    def wipe_a_slice(self) -> None:
        for resource, _, name in self.world.api.objects:
            if resource == "resourceslices":
                self.world.api.delete(resource, name)
                return

    async def published(self, wanted: list[Object]) -> None:
        """Waits until these devices are published."""
        patience = progress.Patience(60.0)
        while (seen := self.slices()) != wanted:
            if patience.over():
                raise Broken(f"published is {_difference(wanted, seen)}")
            await asyncio.sleep(0.05)

    def tell_of_hardware(self) -> None:
        """The kernel says that something has changed."""
        path = f"/devices/pci0000:00/{self.world.gpus[0].address}"
        uevents.broadcast(self.world.folder / "fake", uevents.message("change", path, "pci"))

    async def end(self) -> None:
        """Gives everything back to instances without a fault, and looks whether anything is left."""
        for index, name in list(self.holders.items()):
            self.running.pop(name, None)
            await self.unprepared(self.publisher, name, index)
            del self.holders[index]
        for pod in list(self.instances):
            await self.stop(pod)
        await self.start(PODS[0])
        last: Broken | None = None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                observer.observe(self.world.plugin, self.world.cdi, ())
                observer.instances(self.world.plugin, 1)
                break
            except Broken as broken:
                last = broken
            await asyncio.sleep(0.1)
        else:
            assert last is not None
            raise last
        await self.stop(PODS[0])
        self.check()


def _difference(wanted: list[Object], seen: list[Object]) -> str:
    """Returns the first device that differs."""
    for device in itertools.zip_longest(wanted, seen):
        if device[0] != device[1]:
            return f"{device[1]}, and not {device[0]}"
    return "the same"
