"""Creates pods for the real scheduler and records what it says, with the objects that it saw.

The control plane is etcd, the API server and the scheduler. There are no controllers, so the
recorder creates what they would create: claims of templates, and taints of nodes.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.cluster.pending.api import Api, Object, Refused
from tests.cluster.pending.clusters import Arrival, Cluster
from tests.cluster.pending.documents import READY
from tests.cluster.pending.situation import OWN_UID, Situation
from tests.cluster.rig import build, control_plane, daemons
from tests.cluster.rig.places import LOGS, STATE, Choices, kube_binary
from tests.support import recorded_pods, recorded_shares

# The kinds that `claimd explain` reads, and volumes, which the scheduler reads as well.
KINDS = (
    *("Node", "Pod", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"),
    *("ResourceSlice", "DeviceTaintRule", "PersistentVolumeClaim"),
)
# Seconds in which the scheduler sees new objects.
_SEEN = 1.2
# Seconds in which the scheduler may change a decision.
_SETTLED = 0.3
# The same, if claimd expects another decision.
_PATIENCE = 6.0
# Seconds after which the scheduler will not say anything about a pod.
_SILENCE = 2.0
# Seconds in which the scheduler must say something about a pod.
_ANSWER = 60.0
_ALLOCATED = "resource.kubernetes.io/delete-protection"
_FINALIZER = "recorded.example.com/kept"
_MOMENT = "2026-01-01T00:00:00Z"
_FEASIBLE = re.compile(r'"Plugin scored node for pod" pod="(\S+?)".* node="(\S+?)"')
# The fields that no decision depends on.
_METADATA = (
    *("managedFields", "resourceVersion", "generation", "creationTimestamp", "selfLink"),
    *("deletionGracePeriodSeconds",),
)
_POD_SPEC = (
    *("automountServiceAccountToken", "terminationGracePeriodSeconds", "restartPolicy"),
    *("dnsPolicy", "serviceAccountName", "serviceAccount", "securityContext"),
    *("enableServiceLinks", "preemptionPolicy"),
)
_CONTAINER = ("image", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy")
_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}, qps: 500, burst: 1000}}
leaderElection: {{leaderElect: false}}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""


@dataclass(kw_only=True)
class Verdict:
    """The scheduler's decision about a pod.

    If the pod is bound, `feasible` are the nodes that it could have run on. Otherwise `reason` and
    `message` are those of the pod's condition, if there is one.
    """

    node: str = ""
    feasible: list[str] = field(default_factory=list)
    reason: str = ""
    message: str = ""

    def plain(self) -> Object:
        return {key: value for key, value in vars(self).items() if value}


@contextlib.contextmanager
def control_plane_of(version: str, gates: str = "", controllers: str = "") -> Iterator[Api]:
    """Starts etcd, the API server, the scheduler and these controllers, and stops them at the end."""
    choices = Choices(
        kube=version, control_plane_only=True, api_server_only=True, feature_gates=gates
    )
    build.etcd()
    build.kubernetes(version, ["kube-apiserver", "kube-scheduler", "kubectl"])
    if controllers:
        build.kubernetes(version, ["kube-controller-manager"])
    control_plane.up(choices)
    try:
        configuration = STATE / "scheduler.yaml"
        kubeconfig = STATE / "scheduler.kubeconfig"
        configuration.write_text(_CONFIGURATION.format(kubeconfig=kubeconfig))
        # At this log level the scheduler logs a score for each node that the pod could run on.
        control_plane.start_scheduler(
            choices, f"--config={configuration}", "--vmodule=schedule_one=10"
        )
        api = Api()
        daemons.wait_for("the namespace default", lambda: _has_namespace(api), needs="apiserver")
        account = {"name": "default", "namespace": "default"}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        if controllers:
            flags = (f"--controllers={controllers}", "--use-service-account-credentials=true")
            control_plane.start_controller_manager(choices, *flags)
        daemons.wait_for("the scheduler's caches", _scheduler_runs, needs="scheduler")
        yield api
    finally:
        control_plane.down()
        shutil.rmtree(STATE, ignore_errors=True)


def _has_namespace(api: Api) -> bool:
    return any(item["metadata"]["name"] == "default" for item in api.list("Namespace"))


def _scheduler_runs() -> bool:
    return "Caches are synced" in _log() or "Starting Kubernetes Scheduler" in _log()


def _log(start: int = 0) -> str:
    with open(LOGS / "scheduler.log", "rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace")


class Recorder:
    """Creates the objects of a situation or a cluster, and records what happens to its pods."""

    def __init__(self, api: Api, version: str, kinds: tuple[str, ...] = KINDS) -> None:
        self._api = api
        self._kinds = kinds
        self._kubectl = kube_binary("kubectl", version)

    # Situations

    def record(self, situation: Situation) -> Object:
        """Returns the objects, the pod's name, the verdict and what kubectl describes."""
        api = self._api
        self._label(situation.labels)
        for document in situation.objects:
            self._create(document, kept=_named(document) in situation.deleted)
        self._label(())
        for document in situation.objects:
            if _named(document) in situation.deleted:
                api.request("DELETE", api.path(_placed(document)))

        time.sleep(_SEEN)
        before = self.objects()
        start = (LOGS / "scheduler.log").stat().st_size
        pod = self._create(situation.pod)
        stored = [
            self._create(_with_uid(document, pod["metadata"]["uid"]))
            for document in situation.after
        ]
        if stored:
            pod = self._name_claims(pod, stored)
        seconds = _SILENCE if situation.waits else situation.seconds
        verdict = self._verdict(pod, [*before, *stored, pod], start, seconds)
        described = "" if verdict.node else self._describe(pod)
        objects = [*before, *stored, pod] if verdict.node else self.objects()
        self.clear()
        return steady(
            {
                "title": situation.title,
                "pod": pod["metadata"]["name"],
                "scheduler": verdict.plain(),
                "describe": described,
                "objects": [pruned(document) for document in objects],
            },
            objects,
        )

    def _label(self, labels: tuple[str, ...]) -> None:
        namespace = self._api.get(_object("Namespace", "default"))
        named = dict(label.split("=") for label in labels)
        kept = {"kubernetes.io/metadata.name": "default"} | named
        self._api.put(namespace | {"metadata": namespace["metadata"] | {"labels": kept}})

    def _create(self, document: Object, *, kept: bool = False) -> Object:
        document = _placed(document)
        if kept:
            metadata = document["metadata"] | {"finalizers": [_FINALIZER]}
            document = document | {"metadata": metadata}
        if document["kind"] == "Node":
            document = _ready(document)
        allocation = (document.get("status") or {}).get("allocation")
        if allocation:
            # The scheduler adds these when it allocates a claim.
            document = copy.deepcopy(document)
            document["metadata"]["finalizers"] = [_ALLOCATED]
            document["status"]["allocation"]["allocationTimestamp"] = _MOMENT
        created = self._api.create(document)
        if document["kind"] == "Node":
            # The API server adds the taint of nodes that are not ready to each new node.
            spec = created.get("spec") or {}
            taints = document["spec"].get("taints", [])
            created = self._api.put(created | {"spec": spec | {"taints": taints}})
        return {"apiVersion": document["apiVersion"], "kind": document["kind"]} | created

    def _name_claims(self, pod: Object, claims: list[Object]) -> Object:
        """Names the claims in the pod's status, as the controller of claims does."""
        statuses = [
            {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
            for entry, claim in zip(pod["spec"]["resourceClaims"], claims, strict=True)
        ]
        while True:
            latest = self._api.get(pod)
            status = latest["status"] | {"resourceClaimStatuses": statuses}
            try:
                self._api.put_status(latest | {"status": status})
            except Refused as refused:
                if refused.status == 409:
                    continue
                raise
            return pod | {"status": pod["status"] | {"resourceClaimStatuses": statuses}}

    def _verdict(self, pod: Object, objects: list[Object], start: int, seconds: float) -> Verdict:
        """Returns the scheduler's final decision about the pod.

        The scheduler may refuse a pod before it has seen all objects. So if claimd finds a node in
        the `objects`, the scheduler gets more time. `start` is the size of its log before the pod.
        """
        verdict = self._wait(pod, seconds, lambda verdict: bool(verdict.message))
        if not verdict.node:
            hopeful = recorded_pods.is_possible(objects, pod["metadata"]["name"])
            verdict = self._wait(pod, _PATIENCE if hopeful else _SETTLED, lambda _: False)
        if verdict.node:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            scored = {node for of, node in _FEASIBLE.findall(_log(start)) if of == name}
            verdict.feasible = sorted(scored | {verdict.node})
        return verdict

    def _wait(self, pod: Object, seconds: float, is_enough: Callable[[Verdict], bool]) -> Verdict:
        """Waits until the pod is bound, or `is_enough`, or time is up. Returns the last verdict."""
        end = time.monotonic() + seconds
        while True:
            verdict = self._look(pod)
            if verdict.node or is_enough(verdict) or time.monotonic() > end:
                return verdict
            time.sleep(0.05)

    def _look(self, pod: Object) -> Verdict:
        latest = self._api.get(pod)
        if latest["spec"].get("nodeName"):
            return Verdict(node=latest["spec"]["nodeName"])
        for condition in latest["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled":
                reason, message = condition.get("reason", ""), condition.get("message", "")
                return Verdict(reason=reason, message=message)
        return Verdict()

    def _describe(self, pod: Object) -> str:
        """Returns the status and the Events that `kubectl describe` shows."""
        words = ("describe", "pod", pod["metadata"]["name"], "--namespace=default")
        done = subprocess.run(
            [str(self._kubectl), f"--kubeconfig={STATE}/admin.kubeconfig", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        status = re.findall(r"^Status:.*", done.stdout, re.M)
        events = done.stdout[done.stdout.index("\nEvents:") + 1 :]
        return "\n".join([*status, events]).strip() + "\n"

    # Random pods

    def record_cluster(self, seed: int, cluster: Cluster) -> Object:
        """Returns the objects, and each pod with its verdict. Pods that are not bound are deleted."""
        for document in cluster.objects:
            self._create(document)
        time.sleep(_SEEN)
        objects = self.objects()
        steps = [self._step(arrival) for arrival in cluster.arrivals]
        self.clear()
        recording = {"seed": seed, "objects": list(map(pruned, objects)), "steps": steps}
        everything = [*objects, *(step["pod"] for step in steps)]
        everything += [claim for step in steps for claim in step["claims"] + step["changed"]]
        return steady(recording, everything)

    def _step(self, arrival: Arrival) -> Object:
        claims = [self._create(claim) for claim in arrival.claims]
        before = self.objects()
        start = (LOGS / "scheduler.log").stat().st_size
        pod = self._create(arrival.pod)
        verdict = self._verdict(pod, [*before, pod], start, _SILENCE)
        changed = []
        if verdict.node:
            known = [item["metadata"]["resourceVersion"] for item in before]
            changed = [
                claim
                for claim in self._api.list("ResourceClaim")
                if claim["metadata"]["resourceVersion"] not in known
            ]
        else:
            for document in (pod, *claims):
                self._api.delete(document)
        return {
            "claims": list(map(pruned, claims)),
            "pod": pruned(pod),
            "scheduler": verdict.plain(),
            "changed": list(map(pruned, changed)),
        }

    # Shared GPUs

    def record_shares(self, seed: int) -> Object:
        """Records a world of `recorded_shares`.

        Returns its slices, and each pod with its verdict and its claims' allocations. Pods that are
        not bound are deleted.
        """
        documents, drawn = recorded_shares.numbered(seed)
        created = [self._create(document) for document in documents]
        time.sleep(_SEEN)
        slices = [document["spec"] for document in created if document["kind"] == "ResourceSlice"]

        steps: list[Object] = []
        # The pods that run, each with its claims.
        there: list[list[Object]] = []
        for step in drawn:
            if not isinstance(step, int):
                known = [*created, *itertools.chain.from_iterable(there)]
                recorded, arrived = self._shared_step(step, known)
                steps.append(recorded)
                there += [arrived] if arrived else []
            elif step < len(there):
                pod, *claims = there.pop(step)
                self._delete(pod, *claims)
                # Otherwise the scheduler may see the next pod before it has seen these deletions.
                time.sleep(_SETTLED)
                steps.append({"gone": [claim["metadata"]["name"] for claim in claims]})
        self.clear()
        return {"seed": seed, "slices": slices, "steps": steps}

    def _shared_step(self, asked: list[Object], known: list[Object]) -> tuple[Object, list[Object]]:
        """Returns the step's recording, and the pod with its claims if it is bound."""
        claims = [self._create(claim) for claim in asked]
        devices = {claim["metadata"]["name"]: claim["spec"]["devices"] for claim in claims}
        pod = self._create(recorded_shares.pod_of(list(devices)))
        start = (LOGS / "scheduler.log").stat().st_size
        verdict = self._verdict(pod, [*known, *claims, pod], start, _ANSWER)
        if not verdict.node:
            self._delete(pod, *claims)
            message = verdict.message.partition(" preemption: ")[0]
            return {
                "claims": devices,
                "scheduler": {"reason": verdict.reason, "message": message},
            }, []

        claims = [claim | self._api.get(claim) for claim in claims]
        allocated = {
            claim["metadata"]["name"]: recorded_shares.plain(claim["status"]["allocation"])
            for claim in claims
        }
        scheduler = {"node": verdict.node, "allocated": allocated}
        return {"claims": devices, "scheduler": scheduler}, [pod, *claims]

    def _delete(self, *documents: Object) -> None:
        for document in documents:
            self._api.delete(document)

    # All objects

    def objects(self) -> list[Object]:
        """Returns all objects of the kinds to record, and the namespace default."""
        namespace = {"apiVersion": "v1"} | self._api.get(_object("Namespace", "default"))
        return [namespace, *self._created()]

    def _created(self, kinds: tuple[str, ...] = ()) -> list[Object]:
        listed = [document for kind in kinds or self._kinds for document in self._api.list(kind)]
        # The API server creates these priority classes itself.
        return [each for each in listed if not each["metadata"]["name"].startswith("system-")]

    def clear(self) -> None:
        """Deletes all objects.

        Pods are deleted first, so that no waiting pod gets what the others leave.
        """
        for document in self._created(("Pod", *self._kinds, "Event")):
            self._api.delete(document)
        daemons.wait_for("objects to be gone", lambda: not self._created())


def _object(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _named(document: Object) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def _placed(document: Object) -> Object:
    """Returns the document as the API server accepts it, with a namespace if its kind needs one."""
    if document["kind"] in ("Pod", "PodGroup", "ResourceClaim", "ResourceClaimTemplate"):
        return document | {"metadata": {"namespace": "default"} | document["metadata"]}
    if document["kind"] == "ResourceSlice" and not document["spec"].get("devices"):
        spec = {key: value for key, value in document["spec"].items() if key != "devices"}
        return document | {"spec": spec}
    return document


def _ready(node: Object) -> Object:
    status = node["status"]
    return node | {
        "status": {"conditions": [READY], "capacity": status["allocatable"]} | status,
    }


def _with_uid(document: Object, uid: str) -> Object:
    replaced: Object = json.loads(json.dumps(document).replace(OWN_UID, uid))
    return replaced


# Recordings that are the same in each run


def pruned(document: Object) -> Object:
    pruned = {"apiVersion": document["apiVersion"], "kind": document["kind"]} | document
    pruned["metadata"] = _without(document["metadata"], _METADATA)
    if document["kind"] == "Pod":
        spec = _without(document["spec"], _POD_SPEC)
        for containers in ("initContainers", "containers"):
            if containers in spec:
                spec[containers] = [_without(each, _CONTAINER) for each in spec[containers]]
        pruned["spec"] = spec
        pruned["status"] = _without(document["status"], ("qosClass", "observedGeneration"))
    if document["kind"] == "Namespace":
        del pruned["spec"], pruned["status"]
    if document["kind"] == "Node":
        pruned["status"] = {
            key: document["status"][key]
            for key in ("allocatable", "conditions")
            if key in document["status"]
        }
    return pruned


def _without(mapping: Object, names: tuple[str, ...]) -> Object:
    return {key: value for key, value in mapping.items() if key not in names}


def steady(recording: Object, objects: list[Object]) -> Object:
    """Returns the recording with UIDs made from the objects' names, and with the same time for all."""
    text = json.dumps(recording)
    for document in objects:
        metadata = document["metadata"]
        if "uid" in metadata:
            name = f"uid-of-{document['kind'].lower()}-{metadata['name']}"
            text = text.replace(metadata["uid"], name)
    text = re.sub(r'"\w+": null(, )?', "", text).replace(", }", "}")
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", _MOMENT, text)
    steady: Object = json.loads(text)
    return steady
