"""A played cluster with a node whose taints count: the scheduler's rules and the controllers that
taint nodes and end pods, each of them as it is; only the kubelet is played.
"""

from claimd.kubernetes.scheduling.objects import Node, Pod
from claimd.sim import requests
from claimd.sim.controllers import nodes, taint_evictions
from claimd.sim.requests import Request
from claimd.sim.scheduler import scheduling_cycle
from claimd.sim.scheduler.snapshot import Snapshot
from tests.support.allocating import read
from tests.support.played_cluster import NODE, PlayedCluster

SCHEDULER = requests.EventRecorder("default-scheduler", "Scheduling")


class PlayedTaints(PlayedCluster):
    def __init__(self):
        super().__init__()
        self._due = {}
        metadata = {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        stored = self.send(Request(method="POST", resource="nodes", body=body))
        status = {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.send(requests.patch_status("nodes", stored, status))
        self.settle()

    def taint(self, *taints):
        self._change(taints=list(taints))

    def cordon(self):
        self._change(unschedulable=True)

    def _change(self, **spec):
        node = self.find_node()
        self.send(requests.update("nodes", node | {"spec": node["spec"] | spec}))

    def find_node(self):
        return self.objects("nodes")[NODE]

    def _look(self):
        wants, waits = super()._look()
        objects = {kind: self.objects(kind) for kind in ("nodes", "pods", "leases")}
        wants += nodes.sync(objects, self.now)
        wants += nodes.sync_pods(objects, self.now)
        reviewed = taint_evictions.review(objects, self._due, self.now)
        self._due = reviewed.due
        wants += [*reviewed.marks, *reviewed.deletes]
        return wants, [*waits, reviewed.next_look]

    def _bind(self, pod):
        """What the scheduler decides, in place of a node for everybody."""
        placed = read(list(self.objects("pods").values()), list[Pod])
        there = read(list(self.objects("nodes").values()), list[Node])
        subject = read(pod, Pod)
        decision = scheduling_cycle.schedule_pod(Snapshot.from_objects(there, placed, ()), subject)
        if isinstance(decision, scheduling_cycle.Bind):
            return super()._bind(pod)

        said = {"reason": decision.reason, "message": decision.message}
        condition = {"type": "PodScheduled", "status": "False"} | said
        known = pod["status"].get("conditions") or ()
        if any(condition.items() <= each.items() for each in known):
            return None
        self.send(
            requests.create_event(
                pod, "Pod", "FailedScheduling", decision.message, SCHEDULER, warning=True
            )
        )
        return requests.patch_status("pods", pod, {"conditions": [condition]})
