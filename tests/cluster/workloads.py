"""Records what a real cluster, or the real controllers, do with Jobs and Deployments.

    KUBECONFIG=… python -m tests.cluster.workloads [SCENARIO…]
    python -m tests.cluster.workloads --controllers PATH [SCENARIO…]

Each scenario of `tests/support/workload_scenarios.py` has its own namespace. Its outcome is written
into `tests/cases/workloads`. Four scenarios run at a time. The node must have the image `busybox`.
With `--controllers`, Kubernetes' own kube-controller-manager works on the simulated API server and
nodes, in place of claimd's simulated controllers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from claimd.sim import cluster
from claimd.sim.apiserver import server
from claimd.sim.controllers import loops
from tests.cluster.kubectl import Kubectl, Object
from tests.support import workload_scenarios

CASES = Path(__file__).parents[1] / "cases" / "workloads"
CONTROLLERS = (
    "deployment-controller,replicaset-controller,job-controller,ttl-after-finished-controller"
)
# The number of scenarios that run at a time.
AT_ONCE = 4
# Seconds in which a step of a scenario must be done.
PATIENCE = 150.0
# Seconds between two looks.
GLANCE = 0.3
# Seconds after a scenario in which Events may still arrive.
QUIET = 3.0


class RealCluster:
    """A namespace of a real cluster. It is made for a scenario and deleted after it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._namespace = f"workload-{uuid.uuid4().hex[:8]}"
        kubectl("create", "namespace", self._namespace)
        self._kubectl = kubectl.within(self._namespace)
        # A real cluster refuses pods until the namespace has its default service account.
        self.until(lambda: self.find("serviceaccounts", "default"))
        self.phases: dict[str, list[str]] = {}
        words = ["get", "pods", "--watch", "--output-watch-events", "--output=json"]
        self._watch = Popen(
            ["kubectl", f"--kubeconfig={kubectl.kubeconfig}", "-n", self._namespace, *words],
            stdout=PIPE,
            text=True,
        )
        threading.Thread(target=self._note, daemon=True).start()

    def _note(self) -> None:
        """Notes the phases of each pod, in their order, from the watch."""
        assert self._watch.stdout is not None
        for line in self._watch.stdout:
            pod = json.loads(line)["object"]
            phases = self.phases.setdefault(pod["metadata"]["name"], [])
            if phases[-1:] != [pod["status"]["phase"]]:
                phases.append(pod["status"]["phase"])

    def close(self) -> None:
        self._watch.terminate()
        self._watch.wait()
        self._kubectl("delete", "namespace", self._namespace, "--wait=false")

    def create(self, resource: str, obj: Object) -> None:
        del resource
        self._kubectl("create", "-f", "-", text=json.dumps(obj))

    def patch(self, resource: str, name: str, changed: Object) -> None:
        self._kubectl("patch", resource, name, "--type=merge", "-p", json.dumps(changed))

    def delete(self, resource: str, name: str, policy: str = "Background") -> None:
        self._kubectl("delete", resource, name, f"--cascade={policy.lower()}", "--wait=false")

    def find(self, resource: str, name: str) -> Object | None:
        return self._kubectl.find(resource, name)

    def list(self, resource: str) -> list[Object]:
        return self._kubectl.list(resource)

    def until(self, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"it takes longer than {PATIENCE:.0f} s"
            time.sleep(GLANCE)


def record(kubectl: Kubectl, name: str) -> None:
    real = RealCluster(kubectl)
    try:
        workload_scenarios.ALL[name](real)
        time.sleep(QUIET)
        outcome = workload_scenarios.seen(real)
    finally:
        real.close()
    text = json.dumps(outcome, indent=1, ensure_ascii=False)
    (CASES / f"{name}.json").write_text(f"{text}\n")


def record_all(kubectl: Kubectl, names: list[str]) -> bool:
    """Records all scenarios. Returns True if each could be recorded."""
    CASES.mkdir(exist_ok=True)
    failed = False
    with ThreadPoolExecutor(AT_ONCE) as threads:
        pending = {name: threads.submit(record, kubectl, name) for name in names}
        for name, future in pending.items():
            error = future.exception()
            print(f"{name}: {'not recorded' if error else 'recorded'}", flush=True)
            if error:
                failed = True
                traceback.print_exception(error)
    return not failed


async def with_real_controllers(
    program: str, controllers: str, ours: tuple[Any, ...], record: Callable[[Kubectl], bool]
) -> bool:
    """Records on a simulated cluster with one node, where the program replaces the loops `ours`."""
    machines = [cluster.Machine(name="one", gpus=["nvidia:h100"])]
    options = server.Options(tls=True)
    programs = cluster.Programs(controllers=Path(program), enabled=controllers, replaced=ours)
    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        async with cluster.up(machines, Path(folder), options=options, programs=programs) as up:
            return await asyncio.to_thread(record, Kubectl(kubeconfig=up.kubeconfig))


def command(
    description: str | None,
    scenarios: Iterable[str],
    controllers: str,
    ours: tuple[Any, ...],
    record_all: Callable[[Kubectl, list[str]], bool],
) -> int:
    """Records the scenarios that the command line names, or all of them. Returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--controllers", metavar="PATH", help="a kube-controller-manager")
    parser.add_argument("scenarios", nargs="*", default=list(scenarios))
    asked = parser.parse_args()

    def record(kubectl: Kubectl) -> bool:
        return record_all(kubectl, asked.scenarios)

    if asked.controllers:
        done = asyncio.run(with_real_controllers(asked.controllers, controllers, ours, record))
    else:
        done = record(Kubectl(kubeconfig=Path(os.environ["KUBECONFIG"])))
    return 0 if done else 1


if __name__ == "__main__":
    ours = (loops.Workloads, loops.Jobs)
    sys.exit(command(__doc__, workload_scenarios.ALL, CONTROLLERS, ours, record_all))
