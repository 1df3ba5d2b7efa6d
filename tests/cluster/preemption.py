"""Records what Kubernetes' own scheduler does when a pod could preempt others.

    python -m tests.cluster.preemption [SITUATION…]

Each situation of `tests/support/preemption_situations.py` has its own simulated API server, with the
rig's kube-scheduler. Nodes and pods are objects only, and preempted pods are not ended. The outcomes
are written into `tests/cases/preemption`.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim.apiserver import server
from claimd.sim.dynamic_client import DynamicClient
from tests.support import preemption_situations as situations

BUILT = Path(os.environ.get("RIG_CACHE", Path.home() / ".cache/rig")) / "bin"
# Seconds in which the scheduler must decide about the pod.
PATIENCE = 60.0
# Seconds after this decision in which the scheduler has finished its work.
QUIET = 2.0
# Seconds between two looks.
GLANCE = 0.1

Object = dict[str, Any]

# A function that records a situation with a kube-scheduler. It returns the recording and a summary.
RecordOne = Callable[[str, Path], Coroutine[Any, Any, tuple[Any, str]]]


class Cluster:
    """An API server with objects. There are no kubelets, so no pod runs."""

    def __init__(self, client_: client.Client) -> None:
        self._client = client_
        self._kinds = DynamicClient(client_)

    async def make(self, obj: Object) -> Object:
        """Creates the object with its status, and returns it as the API server stored it."""
        stored = await self._kinds.apply(copy.deepcopy(obj))
        kind, metadata = await self._kinds.kind_of(obj), stored["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        if obj["kind"] == "Node":
            # Removes the taint of nodes that are not ready, since no controller does.
            ready = {"spec": {"taints": obj["spec"].get("taints") or []}}
            stored = json.loads(await self.request("PATCH", path, ready))
        elif "status" in obj:
            stored = json.loads(
                await self.request("PATCH", f"{path}/status", {"status": obj["status"]})
            )
        stored["metadata"].pop("managedFields", None)
        return stored

    async def request(self, method: str, path: str, body: Object | None = None) -> bytes:
        """Sends a request. A PATCH is a merge patch."""
        content = json.dumps(body).encode() if body is not None else None
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return await self._client.request(method, path, body=content, content_type=form)

    async def list(self, word: str) -> list[Object]:
        return await self._kinds.list(await self._kinds.kind_named(word), "default")

    async def events(self) -> list[Object]:
        answer = await self.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        items: list[Object] = json.loads(answer)["items"]
        return items

    async def seen(self) -> Object:
        outcome: Object = situations.seen(await self.list("pods"), await self.events())
        return outcome


async def record(name: str, scheduler: Path) -> tuple[Object, str]:
    """Returns the objects and the outcome, and the pod's outcome as a text."""
    objects, pod = situations.ALL[name]
    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        async with server.serve(server.Options(tls=True)) as api:
            path = api.kubeconfig(Path(folder) / "admin")
            client_ = client.Client(kubeconfig.load(path), agent="recorder")
            try:
                cluster = Cluster(client_)
                created = [await cluster.make(each) for each in (*situations.PRIORITIES, *objects)]
                process = await asyncio.create_subprocess_exec(
                    scheduler,
                    f"--kubeconfig={path}",
                    "--leader-elect=false",
                    "--secure-port=0",
                    f"--cert-dir={folder}/scheduler",
                    stderr=asyncio.subprocess.DEVNULL,
                )
                try:
                    waiting = await cluster.make(pod)
                    await _wait_for_decision(cluster)
                    await asyncio.sleep(QUIET)
                    seen = await cluster.seen()
                    return {"objects": created, "pod": waiting, "seen": seen}, str(seen["pod"])
                finally:
                    process.terminate()
                    await process.wait()
            finally:
                await client_.close()


async def _wait_for_decision(cluster: Cluster) -> None:
    async with asyncio.timeout(PATIENCE):
        while "message" not in (await cluster.seen())["pod"]:
            await asyncio.sleep(GLANCE)


def record_all(about: str | None, situations_: Any, record_one: RecordOne) -> int:
    """Records the situations that the command line names, or all of them, one file per situation."""
    parser = argparse.ArgumentParser(description=about)
    built = sorted(BUILT.glob("kube-1.37.*/kube-scheduler"))
    parser.add_argument("--scheduler", type=Path, default=built[-1] if built else None)
    parser.add_argument("situations", nargs="*", default=list(situations_.ALL))
    asked = parser.parse_args()

    situations_.CASES.mkdir(exist_ok=True)
    for name in asked.situations:
        recorded, summary = asyncio.run(record_one(name, asked.scheduler))
        text = json.dumps(recorded, indent=1, ensure_ascii=False)
        (situations_.CASES / f"{name}.json").write_text(f"{text}\n")
        print(f"{name}: {summary}", flush=True)
    return 0


def main() -> int:
    return record_all(__doc__, situations, record)


if __name__ == "__main__":
    sys.exit(main())
