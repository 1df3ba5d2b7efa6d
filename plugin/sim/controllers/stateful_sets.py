"""StatefulSets: pods with numbers, one after the other, and how a new template reaches them.

Every template is kept as a ControllerRevision, where kubectl looks for it. A pod's name is that of
the set and its number, so that the one before it has to be gone first. Volumes are not here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

from ...api.document import Document
from .. import requests
from ..requests import Request
from . import deployments, templates
from .objects import (
    Objects,
    controller_reference,
    has_ended,
    is_terminating,
    name_suffix,
    status_of,
)

REVISION_LABEL = "controller-revision-hash"  # of a pod: the name of its ControllerRevision
HASH_LABEL = "controller.kubernetes.io/hash"  # of a ControllerRevision
NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NUMBERED = re.compile(r"(.+)-(\d+)")


def sync(objects: Objects, now: float) -> Iterator[Request]:
    """Revisions and pods to make and to delete, and the statuses."""
    for stateful_set in objects["statefulsets"].values():
        if templates.has_template(stateful_set):
            yield from _Look(objects, stateful_set, now).step()


def next_available(objects: Objects, now: float) -> float | None:
    """Seconds until a pod that is ready counts as available, if one is on its way to that."""
    waits = []
    for stateful_set in objects["statefulsets"].values():
        seconds = float(stateful_set["spec"].get("minReadySeconds") or 0)
        for pod in templates.children(objects, "pods", stateful_set) if seconds else ():
            since = templates.ready_since(pod)
            if since is not None and since + seconds > now:
                waits.append(since + seconds - now)
    return min(waits, default=None)


class _Look:
    """One StatefulSet as it is now, and the step that follows."""

    def __init__(self, objects: Objects, stateful_set: Document, now: float) -> None:
        self.set, self.now = stateful_set, now
        self.name = templates.name_of(stateful_set)
        self.spec, self.before = stateful_set["spec"], status_of(stateful_set)
        self.replicas = int(self.spec.get("replicas", 1))
        self.start = int((self.spec.get("ordinals") or {}).get("start") or 0)
        self.in_order = self.spec.get("podManagementPolicy") != "Parallel"

        self.pods: dict[int, Document] = {}  # by number
        for pod in templates.children(objects, "pods", stateful_set):
            numbered = _NUMBERED.fullmatch(templates.name_of(pod))
            if numbered and numbered[1] == self.name:
                self.pods[int(numbered[2])] = pod
        revisions = templates.children(objects, "controllerrevisions", stateful_set)
        self.revisions = sorted(revisions, key=_number)

    @functools.cached_property
    def wanted(self) -> range:
        return range(self.start, self.start + self.replicas)

    @functools.cached_property
    def update(self) -> Document | None:
        """The revision of the template that is to be."""
        data = _data(self.spec["template"])
        for revision in reversed(self.revisions):
            same = templates.without_empty(revision["data"]) == templates.without_empty(data)
            if same:
                return revision
        return None

    @functools.cached_property
    def current(self) -> Document | None:
        """The revision that the pods had when all of them had the same."""
        for revision in self.revisions:
            if templates.name_of(revision) == self.before.get("currentRevision"):
                return revision
        return self.update

    # ------------------------------------------------------------ the step

    def step(self) -> list[Request]:
        revised = self._revise()
        if revised is not None:
            return [revised]
        writes: list[Request] = []
        updated: list[Document] = []
        if not is_terminating(self.set):
            goes_on = self._replenish(writes) and self._shrink(writes)
            if goes_on and (self.spec.get("updateStrategy") or {}).get("type") != "OnDelete":
                updated = self._outdated()
                writes += map(self._delete, updated)
            writes += self._forget_old()

        status = self._status(len(updated))
        return [*writes, *templates.update_status("statefulsets", self.set, status)]

    def _revise(self) -> Request | None:
        """The template becomes the latest revision, if it is not yet."""
        latest = _number(self.revisions[-1]) if self.revisions else 0
        if self.update is None:
            return self._create_revision(latest + 1)
        if self.update is not self.revisions[-1]:
            # One of before counts as new, as it does for kubectl's undo.
            return requests.update("controllerrevisions", self.update | {"revision": latest + 1})
        return None

    def _replenish(self, writes: list[Request]) -> bool:
        """Makes what is missing. Whether the rest may follow: in order, when all are available."""
        for number in self.wanted:
            pod = self.pods.get(number)
            if pod is None:
                writes.append(self._create(number))
                waits = True
            elif has_ended(pod):
                if not is_terminating(pod):
                    writes.append(self._delete(pod))
                waits = True
            else:
                waits = is_terminating(pod) or not self._is_available(pod)
            if waits and self.in_order:
                return False
        return True

    def _shrink(self, writes: list[Request]) -> bool:
        """Takes away what is too many, the highest number first."""
        surplus = sorted(set(self.pods) - set(self.wanted), reverse=True)
        unavailable = [*self.wanted, *reversed(surplus)]
        unavailable = [n for n in unavailable if n in self.pods and self._is_missing(n)]
        for number in surplus:
            pod = self.pods[number]
            if not is_terminating(pod):
                blocked = not self._is_available(pod) and number not in unavailable[:1]
                if blocked and self.in_order:
                    return False
                writes.append(self._delete(pod))
            if self.in_order:
                return False
        return True

    def _outdated(self) -> list[Document]:
        """The pods that have to go now for the new template, the highest numbers first."""
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        partition, most = rolling.get("partition") or 0, rolling.get("maxUnavailable")
        most = 1 if most is None else max(deployments.scaled(most, self.replicas, up=True), 1)

        missing = sum(map(self._is_missing, self.wanted))
        old = []
        for number in reversed(self.wanted[partition:]):
            pod = self.pods.get(number)
            if pod is None or is_terminating(pod) or self._is_of(pod, self.update):
                continue
            old.append(pod)
        if self.in_order:
            return old[: max(most - missing, 0)]

        # What is of no use anyway costs nothing.
        useless = [pod for pod in old if not self._is_available(pod)]
        others = [pod for pod in old if self._is_available(pod)]
        return useless + others[: max(most - missing, 0)]

    def _forget_old(self) -> Iterator[Request]:
        """The oldest revisions beyond those that are to be kept, if no pod has them."""
        live = {_revision_of(pod) for pod in self.pods.values()}
        for revision in (self.current, self.update):
            if revision is not None:
                live.add(templates.name_of(revision))
        old = [one for one in self.revisions if templates.name_of(one) not in live]
        limit = self.spec.get("revisionHistoryLimit")
        for revision in old[: max(len(old) - (10 if limit is None else limit), 0)]:
            yield requests.delete("controllerrevisions", revision)

    # ------------------------------------------------------------ pods

    def _is_missing(self, number: int) -> bool:
        pod = self.pods.get(number)
        return pod is None or is_terminating(pod) or not self._is_available(pod)

    def _is_available(self, pod: Document) -> bool:
        since = templates.ready_since(pod)
        seconds = float(self.spec.get("minReadySeconds") or 0)
        return since is not None and (not seconds or since + seconds <= self.now)

    def _is_of(self, pod: Document, revision: Document | None) -> bool:
        return revision is not None and _revision_of(pod) == templates.name_of(revision)

    def _create(self, number: int) -> Request:
        revision = self._revision_for(number)
        assert revision is not None
        template = {k: v for k, v in revision["data"]["spec"]["template"].items() if k != "$patch"}
        parent = self.set | {"spec": self.spec | {"template": template}}
        name = f"{self.name}-{number}"
        labels = {
            REVISION_LABEL: templates.name_of(revision),
            NAME_LABEL: name,
            INDEX_LABEL: str(number),
        }
        more = {"hostname": name}
        if self.spec.get("serviceName"):
            more["subdomain"] = self.spec["serviceName"]
        request = templates.create_pod("StatefulSet", parent, name, labels, more)
        return requests.with_then(request, self._event("Create", name))

    def _revision_for(self, number: int) -> Document | None:
        """Below the partition a pod keeps the template that it had."""
        strategy = self.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return self.update
        rolling = strategy.get("rollingUpdate")
        kept = self.before.get("currentReplicas") or 0
        if rolling is not None:
            kept = rolling.get("partition") or 0
        return self.current if number < self.start + kept else self.update

    def _delete(self, pod: Document) -> Request:
        event = self._event("Delete", templates.name_of(pod))
        return requests.with_then(requests.delete("pods", pod), event)

    def _event(self, verb: str, pod: str) -> Request:
        note = f"{verb} Pod {pod} in StatefulSet {self.name} successful"
        return templates.record_event("StatefulSet", self.set, f"Successful{verb}", note)

    # ------------------------------------------------------------ revisions and status

    def _create_revision(self, number: int) -> Request:
        metadata, template = self.set["metadata"], self.spec["template"]
        data = _data(template)
        text = json.dumps(templates.without_empty(data), sort_keys=True)
        digest = name_suffix(text, 9)
        labels = (template.get("metadata") or {}).get("labels") or {}
        reference = controller_reference("apps/v1", "StatefulSet", self.set)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{self.name[:223]}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels | {HASH_LABEL: digest},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [reference | {"blockOwnerDeletion": True}],
            },
            "data": data,
            "revision": number,
        }
        return Request(
            method="POST",
            resource="controllerrevisions",
            namespace=metadata["namespace"],
            body=body,
        )

    def _status(self, outdated: int) -> Document:
        assert self.current is not None
        assert self.update is not None
        pods = list(self.pods.values())
        staying = [pod for pod in pods if not is_terminating(pod)]
        status = {
            "replicas": len(pods),
            "readyReplicas": sum(map(templates.is_ready, pods)),
            "availableReplicas": sum(map(self._is_available, pods)),
            "currentReplicas": sum(self._is_of(pod, self.current) for pod in staying) - outdated,
            "updatedReplicas": sum(self._is_of(pod, self.update) for pod in staying),
            "currentRevision": templates.name_of(self.current),
            "updateRevision": templates.name_of(self.update),
            "collisionCount": 0,
        }
        whole = ("updatedReplicas", "readyReplicas", "replicas")
        if all(status[name] == self.replicas for name in whole):
            status["currentReplicas"] = status["updatedReplicas"]
            status["currentRevision"] = status["updateRevision"]
        return status


def _data(template: Document) -> Document:
    """What a revision keeps: a patch that brings the template back."""
    return {"spec": {"template": template | {"$patch": "replace"}}}


def _number(revision: Document) -> int:
    return int(revision.get("revision") or 0)


def _revision_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))
