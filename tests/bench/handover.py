"""What a kubelet feels of an update and of restarts: `python -m tests.bench.handover`.

A kubelet of ours prepares a claim and gives it back, again and again, at whichever instance of the
plugin it has registered last. Meanwhile a second instance comes and takes the first one's place, as
in an update of the DaemonSet; the kubelet starts anew; the plugin is killed. The API server is the
tests' own, in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc

from claimd.common import names
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc
from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.support import apiserver
from tests.support.kubelet import Caller, Kubelet
from tests.support.worlds import DRIVER, NODE, claim_object, result

from .errors import BenchError
from .program import Program, running
from .resting import command

PATIENCE = 60.0  # seconds for what must come about
CALM = 3.0  # seconds of calls when nothing else happens, and after what happens
PAUSE = 0.01  # seconds between two claims
LONGEST = 1000.0  # milliseconds that a prepare may take while an update goes on

Row = tuple[str, float, str, float | None]  # what, how much, its unit, at most


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.bench.handover", description=__doc__).parse_args()
    over = False
    for title, value, unit, limit in asyncio.run(measured()):
        is_over = limit is not None and value > limit
        over = over or is_over
        wanted = "" if limit is None else f"limit {limit:g} {unit}"
        print(f"{title:<52} {value:9.2f} {unit:<3} {wanted} {'OVER' if is_over else ''}".rstrip())
    return 1 if over else 0


async def measured() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="h-") as folder:
        async with node(Path(folder)) as node_, node_.calling():
            return await _measured(node_)


async def _measured(node_: Node) -> list[Row]:
    with node_.instance("first") as first:
        await node_.register("first")
        await asyncio.sleep(CALM)
        usual, begun = statistics.median(node_.took), len(node_.took)

        with node_.instance("second") as second:
            update = await node_.register("second")
            await asyncio.to_thread(first.stop)
            await asyncio.sleep(CALM)
            during, failed = node_.took[begun:], node_.failed

            # A kubelet that starts knows nobody, and finds the socket.
            node_.forget()
            anew = await node_.register("second")
            anew += await node_.another()

            killed = time.perf_counter()
            second.child.kill()
            second.child.wait()
            node_.forget()
            with node_.instance("third"):
                await node_.register("third")
                await node_.another()
                gap = time.perf_counter() - killed

    return [
        ("a prepare, when nothing else happens, median", usual, "ms", None),
        ("update: from its start until it is registered", update, "s", None),
        ("update: prepares meanwhile", len(during), "", None),
        ("update: prepares that failed", failed, "", 0.0),
        ("update: the longest prepare", max(during), "ms", LONGEST),
        ("kubelet restarted: until a claim is prepared", anew, "s", None),
        ("killed and started anew: until a claim is prepared", gap, "s", None),
    ]


@contextlib.asynccontextmanager
async def node(folder: Path) -> AsyncIterator[Node]:
    fake.write(folder / "fake", fake.parse(["nvidia:h100=8"]))
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        gpu = scan.scan(Roots.in_folder(folder / "fake")).gpus[0]
        claim = api.put("resourceclaims", claim_object("again", result(gpu.name)))
        yield Node(folder, api.url, claim)


class Node:
    """A kubelet that has one claim prepared and given back for as long as it knows a plugin."""

    def __init__(self, folder: Path, api: str, claim: dict[str, Any]) -> None:
        self._folder, self._api, self._claim = folder, api, claim
        self._kubelet = Kubelet(folder / "kubelet").folder
        self._caller: Caller | None = None
        self._answered = asyncio.Event()
        self.took: list[float] = []  # milliseconds of each prepare
        self.failed = 0

    @contextlib.contextmanager
    def instance(self, pod_uid: str) -> Iterator[Program]:
        words = [*command(self._folder, self._api), f"--pod-uid={pod_uid}"]
        with running(words, self._folder / "log", None) as program:
            yield program

    async def register(self, pod_uid: str) -> float:
        """Seconds until the instance is registered. From now on it is called."""
        began = time.perf_counter()
        path = names.registration_socket(self._kubelet, DRIVER, pod_uid)
        while time.perf_counter() - began < PATIENCE:
            with contextlib.suppress(grpc.RpcError):
                async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                    stub = api_pb2_grpc.RegistrationStub(channel)
                    info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=5)
                    status = api_pb2.RegistrationStatus(plugin_registered=True)
                    await stub.NotifyRegistrationStatus(status, timeout=5)
                self._caller = Caller(grpc.aio.insecure_channel(f"unix:{info.endpoint}"))
                return time.perf_counter() - began
            await asyncio.sleep(PAUSE)
        raise BenchError(f"waited {PATIENCE:g} s in vain for the instance {pod_uid}")

    def forget(self) -> None:
        """Calls nobody until an instance is registered."""
        self._caller = None

    async def another(self) -> float:
        """Seconds until one more prepare was answered."""
        began = time.perf_counter()
        self._answered.clear()
        async with asyncio.timeout(PATIENCE):
            await self._answered.wait()
        return time.perf_counter() - began

    @contextlib.asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        calls = asyncio.create_task(self._call())
        try:
            yield
        finally:
            calls.cancel()

    async def _call(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            caller = self._caller
            if caller is None:
                continue
            began = time.perf_counter()
            try:
                answers = await caller.prepare(self._claim)
                took = (time.perf_counter() - began) * 1e3
                await caller.unprepare(self._claim)
            except grpc.RpcError:
                # One that was killed is not counted: nobody is called any more.
                self.failed += self._caller is caller
                continue
            if answers[self._claim["metadata"]["uid"]].error:
                self.failed += 1
                continue
            self.took.append(took)
            self._answered.set()


if __name__ == "__main__":
    sys.exit(main())
