"""The StatefulSet controller: numbered pods, created, removed and updated in order.

Each template is stored as a ControllerRevision. A pod's name consists of the set's name and its
number, so its predecessor must be gone before it can be created. Volumes are not simulated.
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
    """Yields requests for revisions and pods, and the statuses."""
    for stateful_set in objects["statefulsets"].values():
        if templates.has_template(stateful_set):
            yield from _Look(objects, stateful_set, now).step()


def next_available(objects: Objects, now: float) -> float | None:
    """Returns the seconds until the next ready pod becomes available, or None."""
    waits = []
    for stateful_set in objects["statefulsets"].values():
        seconds = float(stateful_set["spec"].get("minReadySeconds") or 0)
        for pod in templates.children(objects, "pods", stateful_set) if seconds else ():
            since = templates.ready_since(pod)
            if since is not None and since + seconds > now:
                waits.append(since + seconds - now)
    return min(waits, default=None)


class _Look:
    """One StatefulSet at one moment, and the next step for it."""

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
    def wanted_numbers(self) -> range:
        return range(self.start, self.start + self.replicas)

    @property
    def update(self) -> Document | None:
        """The revision of the current template."""
        return self.history.update

    @functools.cached_property
    def current(self) -> Document | None:
        """The revision that all pods had when the last rollout was complete."""
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
                updated = self._list_outdated()
                writes += map(self._delete, updated)
            writes += self._forget_old()

        status = self._status(len(updated))
        return [*writes, *templates.update_status("statefulsets", self.set, status)]

    def _replenish(self, writes: list[Request]) -> bool:
        """Adds writes for missing and ended pods. Returns True if the later steps may follow."""
        for number in self.wanted_numbers:
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
            # In order, each pod must be available before the next one is handled.
            if waits and self.in_order:
                return False
        return True

    def _shrink(self, writes: list[Request]) -> bool:
        """Adds deletions of surplus pods, highest number first. Returns True if an update may
        follow.
        """
        surplus = sorted(set(self.pods) - set(self.wanted_numbers), reverse=True)
        unavailable = [*self.wanted_numbers, *reversed(surplus)]
        unavailable = [item for item in unavailable if item in self.pods and self._is_missing(item)]
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

    def _list_outdated(self) -> list[Document]:
        """Returns the pods to replace now by the new template, highest number first."""
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        partition, most = rolling.get("partition") or 0, rolling.get("maxUnavailable")
        most = (
            1 if most is None else max(deployments.resolve_amount(most, self.replicas, up=True), 1)
        )

        # Unavailable pods count against the number that may be replaced at once.
        missing = sum(map(self._is_missing, self.wanted_numbers))
        old = []
        for number in reversed(self.wanted_numbers[partition:]):
            pod = self.pods.get(number)
            if pod is None or is_terminating(pod) or self._is_of(pod, self.update):
                continue
            old.append(pod)
        if self.in_order:
            return old[: max(most - missing, 0)]

        # Pods that are not available can be replaced at once.
        useless = [pod for pod in old if not self._is_available(pod)]
        others = [pod for pod in old if self._is_available(pod)]
        return useless + others[: max(most - missing, 0)]

    def _forget_old(self) -> Iterator[Request]:
        """Yields deletions of old revisions that no pod has."""
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
        """Returns the revision for a pod: below the partition it is the current one."""
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

        # The rollout is complete: the updated revision becomes the current one.
        whole = ("updatedReplicas", "readyReplicas", "replicas")
        if all(status[name] == self.replicas for name in whole):
            status["currentReplicas"] = status["updatedReplicas"]
            status["currentRevision"] = status["updateRevision"]
        return status
