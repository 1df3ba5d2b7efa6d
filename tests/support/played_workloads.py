"""Workloads whose controllers are played: what they want is carried out, as an API server would."""

import copy

from claimd.common import timestamps
from claimd.sim.controllers import workloads
from tests.support.planes import copies, meta

NOW = 1767225600.0


def workload(kind, **spec):
    template = {
        "metadata": {"labels": {"app": "demo"}},
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta("demo", generation=1),
        "spec": {"template": template} | spec,
    }


class Played:
    def __init__(self, **objects):
        self.objects = copies(**objects)
        self.now = NOW
        self.capacity = 1_000_000  # pods that become ready
        self._made = 0

    def step(self):
        calls = workloads.sync(self.objects, self.now)
        for call in calls:
            key = f"{call.namespace}/{call.name or call.body['metadata']['name']}"
            there = self.objects[call.resource]
            if call.method == "DELETE":
                del there[key]
            elif call.method == "PATCH":
                annotations = there[key]["metadata"].setdefault("annotations", {})
                annotations |= call.body["metadata"]["annotations"]
            elif call.subresource:
                there[key] = there[key] | {"status": copy.deepcopy(call.body["status"])}
            elif call.method == "PUT":
                there[key] = copy.deepcopy(call.body) | {"status": there[key].get("status", {})}
            else:
                assert key not in there
                self._made += 1
                new = copy.deepcopy(call.body)
                new["metadata"]["uid"] = f"uid-{call.body['metadata']['name']}"
                new["metadata"]["creationTimestamp"] = timestamps.rfc3339(NOW + self._made)
                there[key] = new
        return calls

    def settle(self):
        for _ in range(40):
            if not self.step():
                return
        raise AssertionError("it never comes to an end")

    def ready(self, *names):
        """The pods of these names, or as many as there is room for."""
        room = self.capacity - sum("status" in pod_ for pod_ in self.pods)
        for pod_ in self.pods:
            is_meant = pod_["metadata"]["name"] in names if names else room > 0
            if "status" not in pod_ and is_meant:
                room -= 1
                if "affinity" not in pod_["spec"]:  # which has a daemon set's pod go elsewhere
                    pod_["spec"]["nodeName"] = "node-1"
                condition = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": timestamps.rfc3339(self.now),
                }
                pod_["status"] = {"phase": "Running", "conditions": [condition]}

    def roll(self, image):
        """A new template, as far as it gets; how many pods there were at most and ready at least."""
        spec = self.deployment["spec"]
        container = spec["template"]["spec"]["containers"][0] | {"image": image}
        template = spec["template"] | {"spec": {"containers": [container]}}
        self.change(template=template)
        most, least = len(self.pods), len(self.pods)
        for _ in range(60):
            self.step()
            most = max(most, len(self.pods))
            least = min(least, sum("status" in pod_ for pod_ in self.pods))
            self.ready()
        self.settle()
        return most, least

    def change(self, **spec):
        deployment = self.deployment
        deployment["spec"] = deployment["spec"] | spec
        deployment["metadata"]["generation"] += 1

    @property
    def deployment(self):
        return self.objects["deployments"]["default/demo"]

    @property
    def pods(self):
        return list(self.objects["pods"].values())

    @property
    def images(self):
        return sorted(pod_["spec"]["containers"][0]["image"] for pod_ in self.pods)

    @property
    def revisions(self):
        """By image of a replica set, its revision and its size."""
        revisions_ = {}
        for replica_set in self.objects["replicasets"].values():
            image = replica_set["spec"]["template"]["spec"]["containers"][0]["image"]
            revision = replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
            revisions_[image] = revision, replica_set["spec"]["replicas"]
        return revisions_

    def condition(self, type_):
        for condition_ in self.deployment["status"]["conditions"]:
            if condition_["type"] == type_:
                return condition_["status"], condition_["reason"]
        return None
