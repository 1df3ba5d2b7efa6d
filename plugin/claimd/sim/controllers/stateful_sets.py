"""StatefulSets: pods with numbers, one after the other, and how a new template reaches them.

Every template is kept as a ControllerRevision. A pod's name is that of
the set and its number, so that the one before it has to be gone first. Volumes are not here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from . import deployments, revisions, templates
from .objects import Objects, has_ended, is_terminating, status_of

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
        self.history = revisions.History(objects, "StatefulSet", stateful_set)

    @functools.cached_property
    def wanted(self) -> range:
        return range(self.start, self.start + self.replicas)

    @property
    def update(self) -> Document | None:
        """The revision of the template that is to be."""
        return self.history.update

    @functools.cached_property
    def current(self) -> Document | None:
        """The revision that the pods had when all of them had the same."""
        for revision in self.history.revisions:
            if templates.name_of(revision) == self.before.get("currentRevision"):
                return revision
        return self.update

    # ------------------------------------------------------------ the step

    def step(self) -> list[Request]:
        revised = self.history.revise()
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
        """Revisions that no pod has."""
        live = set(map(revisions.label_of, self.pods.values()))
        for revision in (self.current, self.update):
            if revision is not None:
                live.add(templates.name_of(revision))
        return self.history.forget_old(live)

    # ------------------------------------------------------------ pods

    def _is_missing(self, number: int) -> bool:
        pod = self.pods.get(number)
        return pod is None or is_terminating(pod) or not self._is_available(pod)

    def _is_available(self, pod: Document) -> bool:
        since = templates.ready_since(pod)
        seconds = float(self.spec.get("minReadySeconds") or 0)
        return since is not None and (not seconds or since + seconds <= self.now)

    def _is_of(self, pod: Document, revision: Document | None) -> bool:
        return revision is not None and revisions.label_of(pod) == templates.name_of(revision)

    def _create(self, number: int) -> Request:
        revision = self._revision_for(number)
        assert revision is not None
        template = revisions.template_of(revision)
        parent = self.set | {"spec": self.spec | {"template": template}}
        name = f"{self.name}-{number}"
        labels = {
            revisions.POD_LABEL: templates.name_of(revision),
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
