"""The hostile API server campaign: real `claimd run` processes, each with an API server that is
sick in its own way.

A row of TROUBLES says how; `suffer` plays the kubelet before, under and after it, and checks what a
user was promised. How answers are spoilt is the proxy's, in tests/support.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.plugin.kubernetes.kube import conftest as pki
from tests.support import apiserver
from tests.support.apiserver import Fault
from tests.support.kubelet import Caller, Kubelet, calling
from tests.support.worlds import NODE, claim_object, result

SHORT = 8.0  # seconds of trouble in the short run
MARGIN = 2.0  # that claimd keeps back for its answer
NAME = "api.claimd.test"  # for those who look it up
END = 2.0  # seconds that claimd has to stop
SILENT = "no answer|has not said|did not take|has no address"  # in one step or another of a request
FEW = 5.0  # requests a second, on the average of the sick time
START = 10  # requests more that a start in the sick time may make: back-offs begin anew
BURST = 25  # in the worst second of it, when the test itself asks for three claims
GROWTH = 8 << 20  # bytes of memory: arenas of a burst
DESCRIPTORS = 10  # a burst leaves up to eight connections, for some seconds

Object = dict[str, Any]

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One way of being sick. A prepare of a new claim says `reason` meanwhile; without one it works
    all the same.
    """

    reason: str = ""  # a pattern
    fault: Fault | None = None
    outside: Literal["", "away", "certificate", "token", "name", "resolver"] = (
        ""  # what else is wrong meanwhile
    )
    silences: bool = False  # nothing comes any more of the watches that are open
    cuts: bool = True  # connections of before are cut when it begins
    crowd: int = 0  # so many other claims are asked for at the same time
    restart: bool = False  # claimd is stopped and started again meanwhile
    heals: float = 35.0  # seconds from the end of the trouble until everything is right again
    long: bool = False  # not for the short run


TROUBLES: dict[str, Trouble] = {
    "slow": Trouble(fault=Fault(delay=1.5)),
    "mute": Trouble(reason="no answer", fault=Fault(passes="nothing")),
    "headers, then nothing": Trouble(reason="no answer", fault=Fault(passes="head")),
    "hangs up": Trouble(reason="closed the connection", fault=Fault(passes="nothing", closes=True)),
    "cut short": Trouble(reason="broke off", fault=Fault(passes="half", closes=True)),
    "429": Trouble(reason="429", fault=Fault(status=429, headers={"Retry-After": "2"})),
    "500": Trouble(reason="500", fault=Fault(status=500)),
    "503": Trouble(reason="503", fault=Fault(status=503)),
    "401": Trouble(reason="401", outside="token"),
    "certificate of a stranger": Trouble(reason="not trusted", outside="certificate"),
    "away": Trouble(reason="refused the connection", outside="away"),
    "away, and a restart": Trouble(reason="refused the connection", outside="away", restart=True),
    "mute, and a restart": Trouble(reason=SILENT, fault=Fault(passes="nothing"), restart=True),
    "500, and a restart": Trouble(reason="500", fault=Fault(status=500), restart=True),
    "name does not resolve": Trouble(reason="has no address", outside="name"),
    "resolver is silent": Trouble(reason=SILENT, outside="resolver"),
    "resolver is silent, and a restart": Trouble(reason=SILENT, outside="resolver", restart=True),
    "resolver is silent, and many ask": Trouble(reason=SILENT, outside="resolver", crowd=12),
    "410 to every watch": Trouble(fault=Fault(only="watches", error_event=410)),
    "500 to every watch": Trouble(fault=Fault(only="watches", status=500)),
    "watches end at once": Trouble(fault=Fault(only="watches", passes="head", closes=True)),
    # Nobody is told that it is over: silence is found out after a minute and a half.
    "watch goes silent": Trouble(silences=True, cuts=False, heals=130.0, long=True),
}


class World:
    """A node, its API server, and one claimd. The certificates lie in `keys`."""

    def __init__(
        self, folder: Path, keys: Path, trouble: Trouble, api: apiserver.ApiServer
    ) -> None:
        self.folder, self.keys, self.trouble, self.api = folder, keys, trouble, api
        self.kubelet = Kubelet(folder / "kubelet")
        fake.write(folder / "fake", fake.parse(["amd:mi300x=4"]))
        self.gpus = scan.scan(Roots.in_folder(folder / "fake")).gpus
        api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        self.process: asyncio.subprocess.Process | None = None
        # Of this world alone: nobody listens there, or somebody who never answers.
        self._resolver = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.{next(_numbers)}"
        self._silent: socket.socket | None = None

    @property
    def named(self) -> bool:
        return self.trouble.outside in ("name", "resolver")

    def claim(self, name: str, index: int) -> Object:
        return self.api.put("resourceclaims", claim_object(name, result(self.gpus[index].name)))

    def entries(self, name: str) -> list[Object]:
        devices: list[Object] = self.api.objects["resourceclaims", "default", name]["status"].get(
            "devices", []
        )
        return devices

    def slices(self) -> list[str]:
        slices_ = [
            obj for (kind, _, _), obj in self.api.objects.items() if kind == "resourceslices"
        ]
        return sorted(device["name"] for obj in slices_ for device in obj["spec"]["devices"])

    def wipe_slices(self) -> None:
        for kind, _, name in list(self.api.objects):
            if kind == "resourceslices":
                self.api.delete(kind, name)

    def usage(self) -> tuple[int, int]:
        """Resident bytes and open files of claimd."""
        assert self.process is not None
        of = Path(f"/proc/{self.process.pid}")
        return int((of / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"), len(
            os.listdir(of / "fd")
        )

    # ------------------------------------------------------------------ claimd

    async def start(self, **more: str) -> str:
        """Returns the DRA socket, of which the kubelet knows; `more` are settings."""
        settings = {
            "node-name": NODE,
            "kubelet-dir": self.folder / "kubelet",
            "cdi-dir": self.folder / "cdi",
            "root": self.folder / "fake",
            "kubeconfig": self.folder / "kubeconfig",
            "log-format": "json",
            "stop-grace": 1,
            **more,
        }
        command = [
            sys.executable,
            "-m",
            "claimd",
            "run",
            *(f"--{key}={value}" for key, value in settings.items()),
        ]
        if self.named:
            binds = " && ".join(
                f"mount --bind {self.folder}/{name} /etc/{name}"
                for name in ("hosts", "resolv.conf")
            )
            command = ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh", *command]
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        return (await self.kubelet.register()).endpoint

    async def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END):
                await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"it did not end within {END:g} s of SIGTERM") from None

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()

    async def configure(self) -> None:
        """All that claimd needs to find the API server, and the API server."""
        if self.named:
            self._resolve(NAME)
            (self.folder / "resolv.conf").write_text(
                f"nameserver {self._resolver}\noptions timeout:5 attempts:2\n"
            )
        host = NAME if self.named else "127.0.0.1"
        cluster: Object = {
            "server": f"{'https' if self.api.tls else 'http'}://{host}:{self.api.port}"
        }
        if self.api.tls:
            cluster["certificate-authority"] = str(self.keys / "ca.crt")
        user = {}
        if self.trouble.outside == "token":
            self._token("first")
            user["tokenFile"] = str(self.folder / "token")
        config = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": cluster}],
            "users": [{"name": "t", "user": user}],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))

    def _token(self, token: str) -> None:
        (self.folder / "token").write_text(token)
        self.api.token = token

    def _resolve(self, *names: str) -> None:
        """In place: the file is mounted over /etc/hosts, for claimd alone."""
        (self.folder / "hosts").write_text(
            "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *names))
        )

    # ------------------------------------------------------------------ trouble

    async def fall_sick(self) -> None:
        if self.trouble.fault is not None:
            self.api.faults.append(self.trouble.fault)
        if self.trouble.silences:
            self.api.silence_watches()
        match self.trouble.outside:
            case "away":
                await self.api.stop()
            case "certificate":
                await self.api.stop()
                self.api.tls = _tls(self.keys / "stranger.crt")
                await self.api.start()
            case "token":
                self.api.token = "second"
            case "name":
                self._resolve()
            case "resolver":
                self._resolve()
                self._silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                self._silent.bind((self._resolver, 53))
        if self.trouble.cuts:
            await self.api.cut()

    async def recover(self) -> None:
        self.api.faults.clear()
        match self.trouble.outside:
            case "away":
                await self.api.start()
            case "certificate":
                await self.api.stop()
                self.api.tls = _tls(self.keys / "server.crt")
                await self.api.start()
            case "token":
                self._token("second")
            case "name" | "resolver":
                self._resolve(NAME)
                self.hush()

    def hush(self) -> None:
        """Nobody listens to the resolver's port any more."""
        if self._silent is not None:
            self._silent.close()


async def suffer(name: str, keys: Path, seconds: float) -> str:
    """One scenario, with so many seconds of trouble. Returns figures; AssertionError tells the
    broken promise.
    """
    trouble = TROUBLES[name]
    async with _world(keys, trouble) as world:
        endpoint = await world.start()
        kept, leaving, new, late = (
            world.claim(claim, index)
            for index, claim in enumerate(("kept", "leaving", "new", "late"))
        )
        async with calling(endpoint) as caller:
            before = await _prepared(caller, kept)
            await _prepared(caller, leaving)
        await apiserver.until(
            lambda: world.slices() and world.entries("kept") and world.entries("leaving")
        )
        usage = world.usage()

        await world.fall_sick()
        began = time.monotonic()
        world.wipe_slices()
        if trouble.restart:
            async with calling(endpoint) as caller:
                await _refused(caller, new, trouble, 4.0)
            await world.stop()
            endpoint = await world.start()
            usage = world.usage()
        async with calling(endpoint) as caller:
            hopeless = asyncio.create_task(
                _refused(caller, new, trouble, max(4.0, min(45.0, seconds - 3.0)))
            )
            crowd = [world.claim(f"crowd-{number}", 3) for number in range(trouble.crowd)]
            others = [
                asyncio.create_task(caller.prepare(claim, timeout=seconds)) for claim in crowd
            ]
            assert await _prepared(caller, kept, 6.0) == before, (
                "a repeated prepare gave something else"
            )
            assert not (await caller.unprepare(leaving, timeout=5.0))["uid-leaving"].error
            await asyncio.gather(hopeless, *others)
            # The kubelet asks for one more, and waits: this one sees the end of the trouble.
            waiting = asyncio.create_task(_prepared(caller, late, 45.0))
            await asyncio.sleep(max(2.0, began + seconds - time.monotonic()))
            assert await _prepared(caller, kept, 6.0) == before

            await world.recover()
            ended = time.monotonic()
            await waiting
            waited = time.monotonic() - ended
            await _prepared(caller, new)
        right = sorted(gpu.name for gpu in world.gpus)
        await apiserver.until(lambda: world.slices() == right, trouble.heals)
        healed = time.monotonic() - ended
        await apiserver.until(
            lambda: (
                all(map(world.entries, ("kept", "new", "late"))) and not world.entries("leaving")
            ),
            max(1.0, ended + trouble.heals + 2 * seconds - time.monotonic()),
        )
        reported = time.monotonic() - ended

        # What came back may have been listed. Whether watches live shows what happens from now on.
        world.wipe_slices()
        wiped = time.monotonic()
        await apiserver.until(lambda: world.slices() == right, trouble.heals)
        figures = (
            f"late claim after {waited:.1f} s, slices {healed:.1f} s, status {reported:.1f} s, "
            f"slices once more {time.monotonic() - wiped:.1f} s; "
        )
        return figures + _moderate(world, (began, ended), usage)


def _moderate(world: World, sick: tuple[float, float], usage: tuple[int, int]) -> str:
    """Few requests while the server is sick, one list at a time, and nothing grows."""
    seconds = sick[1] - sick[0]
    count, most = world.api.count_between(*sick), world.api.busiest_second(*sick)
    if world.trouble.restart:
        count -= START
    mean = count / seconds
    lists = world.api.count_between(*sick, lambda request: request.is_list)
    memory, files = (now - then for now, then in zip(world.usage(), usage, strict=True))
    figures = f"{mean:.1f} requests/s, {most} in the worst second, {lists} lists; {memory >> 10} KiB, {files} files more"
    assert world.api.lists_at_once <= 1, f"{world.api.lists_at_once} lists at once: {figures}"
    assert lists <= 2 + seconds, f"too many lists: {figures}"
    assert mean <= FEW, f"too many requests: {figures}"
    assert most <= BURST, f"too many requests: {figures}"
    assert memory < GROWTH, f"memory has grown: {figures}"
    assert files <= DESCRIPTORS, f"files stay open: {figures}"
    return figures


async def _prepared(caller: Caller, claim: Object, timeout: float = 20.0) -> list[str]:
    answer = (await caller.prepare(claim, timeout=timeout))[claim["metadata"]["uid"]]
    assert not answer.error, answer.error
    return [id_ for device in answer.devices for id_ in device.cdi_device_ids]


async def _refused(caller: Caller, claim: Object, trouble: Trouble, timeout: float) -> None:
    """In time for the kubelet, with the reason; prepared where the trouble leaves room for it."""
    began = time.monotonic()
    answer = (await caller.prepare(claim, timeout=timeout))[claim["metadata"]["uid"]]
    assert time.monotonic() - began < timeout - MARGIN / 2, "the answer came at the last moment"
    assert re.search(trouble.reason, answer.error), (
        f"expected {trouble.reason!r}, got {answer.error!r}"
    )
    assert bool(answer.error) == bool(trouble.reason), answer.error


@contextlib.asynccontextmanager
async def _world(keys: Path, trouble: Trouble) -> AsyncIterator[World]:
    # A short name: the sockets' paths are limited.
    with tempfile.TemporaryDirectory(prefix="h-") as folder:
        secure = trouble.outside == "certificate"
        async with apiserver.serve(_tls(keys / "server.crt") if secure else None) as api:
            world = World(Path(folder), keys, trouble, api)
            await world.configure()
            try:
                yield world
            except BaseException:
                print((world.folder / "log").read_text()[-4000:])
                raise
            finally:
                await world.kill()
                world.hush()


def make_keys(folder: Path) -> None:
    """A certificate by the authority that claimd trusts, and one by another."""
    for authority, server in (("ca", "server"), ("other", "stranger")):
        pki.sign(
            folder, pki.authority(folder, authority), server, "DNS:kubernetes.test,IP:127.0.0.1"
        )


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def missing(name: str) -> str:
    """What this machine lacks for the scenario."""
    trouble = TROUBLES[name]
    if trouble.outside == "certificate" and not shutil.which("openssl"):
        return "openssl is not installed"
    if trouble.outside in ("name", "resolver"):
        tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        return "may not make a mount namespace of its own" if tried.returncode else ""
    return ""


async def suffer_all(
    names: list[str], seconds: float, at_once: int, tell: Callable[[str], None] = print
) -> dict[str, str]:
    """Plays these scenarios, some of them side by side: most of the time they wait. Returns the
    failures, by name.
    """
    failed: dict[str, str] = {}
    slots = asyncio.Semaphore(at_once)

    async def play(name: str, keys: Path) -> None:
        async with slots:
            try:
                tell(f"{name}: {await suffer(name, keys, seconds)}")
            except (AssertionError, Exception) as error:  # noqa: BLE001  whatever it is, the others go on
                failed[name] = f"{type(error).__name__}: {error}"
                tell(f"{name}: FAILED: {failed[name]}")

    with tempfile.TemporaryDirectory() as keys:
        make_keys(Path(keys))
        await asyncio.gather(*(play(name, Path(keys)) for name in names))
    return failed


def run(seed: int, count: int) -> None:
    """`count` rounds of every scenario, each with half a minute to a minute of trouble.
    AssertionError at the end.
    """
    dice = random.Random(seed)
    failed: dict[str, str] = {}
    for _ in range(count):
        names = [name for name in TROUBLES if not missing(name)]
        dice.shuffle(names)
        failed |= asyncio.run(suffer_all(names, dice.uniform(30.0, 60.0), 6))
    assert not failed, failed
