"""Records what taints of a node do to pods, on a real cluster of one node.

    KUBECONFIG=… python -m tests.cluster.taints [SCENARIO…]
    python -m tests.cluster.taints --controllers PATH [SCENARIO…]

Each scenario of `tests/support/taint_scenarios.py` has its own namespace. Its outcome is written
into `tests/cases/taints`. The scenarios run one after the other, since they taint the same node. The
node must have the image `busybox`. With `--controllers`, Kubernetes' own kube-controller-manager
taints the node of a simulated cluster and evicts its pods, in place of claimd's simulated controllers.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from claimd.sim.controllers import loops
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.workloads import QUIET, RealCluster, command
from tests.support import taint_scenarios

CONTROLLERS = "node-lifecycle-controller,taint-eviction-controller"
CASES = Path(__file__).parents[1] / "cases" / "taints"


class TaintedCluster(RealCluster):
    """A cluster whose node gets its former taints back when the scenario has ended."""

    def __init__(self, kubectl: Kubectl) -> None:
        super().__init__(kubectl)
        (node,) = kubectl.list("nodes")
        self._node = node["metadata"]["name"]
        self._before = node["spec"].get("taints") or []

    def taint(self, *taints: Object) -> None:
        self.patch("nodes", self._node, {"spec": {"taints": [*self._before, *taints]}})

    def cordon(self) -> None:
        self.patch("nodes", self._node, {"spec": {"unschedulable": True}})

    def close(self) -> None:
        self.patch("nodes", self._node, {"spec": {"taints": self._before, "unschedulable": None}})
        for pod in self.list("pods"):
            self.delete("pods", pod["metadata"]["name"])
            self.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        super().close()


def record(kubectl: Kubectl, name: str) -> None:
    cluster = TaintedCluster(kubectl)
    try:
        taint_scenarios.ALL[name](cluster)
        time.sleep(QUIET)
        outcome = taint_scenarios.seen(cluster)
    finally:
        cluster.close()
    text = json.dumps(outcome, indent=1, ensure_ascii=False)
    (CASES / f"{name}.json").write_text(f"{text}\n")


def record_all(kubectl: Kubectl, names: list[str]) -> bool:
    """Records all scenarios. Returns True if each could be recorded."""
    CASES.mkdir(exist_ok=True)
    done = True
    for name in names:
        try:
            record(kubectl, name)
        except (AssertionError, KubectlError):
            done = False
            traceback.print_exc()
            print(f"{name}: not recorded", flush=True)
        else:
            print(f"{name}: recorded", flush=True)
    return done


if __name__ == "__main__":
    ours = (loops.Nodes, loops.TaintEvictions)
    sys.exit(command(__doc__, taint_scenarios.ALL, CONTROLLERS, ours, record_all))
