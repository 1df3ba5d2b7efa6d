"""The Deployment controller: creates a ReplicaSet for each template, and moves pods to the new one.

Each round makes one step, as far as the strategy allows with the pods that exist now. The next
round continues. Revisions are stored as annotations, which kubectl reads.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import MERGE_PATCH, Request
from .objects import Objects, controller_reference, has_ended, is_terminating, status_of
from .templates import (
    TEMPLATE_HASH,
    children,
    has_template,
    name_of,
    record_event,
    template_hash,
    update_status,
    without_empty,
)

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN_ANNOTATIONS = (REVISION, HISTORY, DESIRED, MAXIMUM, LAST_APPLIED)
_NO_DEADLINE = 2**31 - 1
_DEFAULT_SHARE = "25%"


def sync(objects: Objects, now: float) -> Iterator[Request]:
    """Yields requests that create, scale and delete ReplicaSets, and the statuses of Deployments."""
    for deployment in objects["deployments"].values():
        if not is_terminating(deployment) and has_template(deployment):
            yield from _Rollout.from_objects(objects, deployment, now).step()


def next_deadline(objects: Objects, now: float) -> float | None:
    """Returns the seconds until the first running rollout exceeds its progress deadline, or None."""
    waits = []
    for deployment in objects["deployments"].values():
        condition = _condition(status_of(deployment), "Progressing")
        deadline = _deadline_of(deployment)
        if condition is None or deadline is None:
            continue
        if condition["status"] != "True" or condition["reason"] == "NewReplicaSetAvailable":
            continue
        # Times are written in whole seconds, so wait one second more.
        due = requests.parse_time(condition["lastUpdateTime"]) + deadline + 1
        waits.append(max(due - now, 0.1))
    return min(waits, default=None)


def resolve_amount(amount: Any, total: int, *, up: bool) -> int:
    """Resolves a number, or a percentage of the total that is rounded up or down."""
    if isinstance(amount, int):
        return amount
    percent = int(str(amount).removesuffix("%"))
    return -(-percent * total // 100) if up else percent * total // 100


# ---------------------------------------------------------------- ReplicaSets and their numbers


def _replicas(replica_set: Document) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _count(replica_sets: Iterable[Document], field: str) -> int:
    return sum(status_of(replica_set).get(field) or 0 for replica_set in replica_sets)


def _annotations(obj: Document) -> Document:
    return obj["metadata"].get("annotations") or {}


def _number(obj: Document, annotation: str) -> int:
    try:
        return int(_annotations(obj).get(annotation, 0))
    except ValueError:
        return 0


def _creation_order(obj: Document) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp") or "", name_of(obj)


def _normalize_template(template: Document) -> Document:
    """Returns the part of a template that distinguishes it from others.

    Typed clients write empty fields where other clients write none, with the same meaning, so empty
    fields are dropped. The hash label, which this controller adds, is dropped, too.
    """
    metadata = template.get("metadata") or {}
    labels = dict(metadata.get("labels") or {})
    labels.pop(TEMPLATE_HASH, None)
    compared = {"metadata": metadata | {"labels": labels}, "spec": template["spec"]}
    return without_empty(compared)  # type: ignore[no-any-return]


def _condition(status: Document, type_: str) -> Document | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == type_:
            return condition  # type: ignore[no-any-return]
    return None


def _deadline_of(deployment: Document) -> float | None:
    """Returns the seconds that a rollout may take without progress, or None if there is no limit."""
    seconds = deployment["spec"].get("progressDeadlineSeconds", 600)
    return None if seconds in (None, _NO_DEADLINE) else float(seconds)


# ---------------------------------------------------------------- one rollout


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rollout:
    """A Deployment with its ReplicaSets, at one moment."""

    objects: Objects
    deployment: Document
    new: Document | None  # the ReplicaSet of the current template
    old: tuple[Document, ...]  # the other ReplicaSets, oldest first
    now: float

    @classmethod
    def from_objects(cls, objects: Objects, deployment: Document, now: float) -> _Rollout:
        owned = [
            replica_set
            for replica_set in children(objects, "replicasets", deployment)
            if not is_terminating(replica_set) and has_template(replica_set)
        ]

        # If several ReplicaSets have the template, the oldest is the new one, as in Kubernetes.
        owned.sort(key=_creation_order)
        template = _normalize_template(deployment["spec"]["template"])
        new = None
        for replica_set in owned:
            if _normalize_template(replica_set["spec"]["template"]) == template:
                new = replica_set
                break

        old = tuple(replica_set for replica_set in owned if replica_set is not new)
        return cls(objects=objects, deployment=deployment, new=new, old=old, now=now)

    # ------------------------------------------------------------ what is wanted

    @functools.cached_property
    def replicas(self) -> int:
        return int(self.deployment["spec"].get("replicas", 1))

    @functools.cached_property
    def _strategy(self) -> Document:
        return self.deployment["spec"].get("strategy") or {}

    @property
    def is_rolling(self) -> bool:
        return self._strategy.get("type") != "Recreate"

    @functools.cached_property
    def max_surge(self) -> int:
        if not self.is_rolling:
            return 0
        amount = (self._strategy.get("rollingUpdate") or {}).get("maxSurge", _DEFAULT_SHARE)
        return resolve_amount(amount, self.replicas, up=True)

    @functools.cached_property
    def max_unavailable(self) -> int:
        """The number of pods that may be unavailable.

        It is at least one if there is no surge. Otherwise the rollout would get stuck.
        """
        if not self.is_rolling or not self.replicas:
            return 0
        amount = (self._strategy.get("rollingUpdate") or {}).get("maxUnavailable", _DEFAULT_SHARE)
        unavailable = resolve_amount(amount, self.replicas, up=False)
        if not unavailable and not self.max_surge:
            unavailable = 1
        return min(unavailable, self.replicas)

    @property
    def all(self) -> list[Document]:
        return [*self.old, self.new] if self.new is not None else list(self.old)

    # ------------------------------------------------------------ one step

    def step(self) -> list[Request]:
        """Returns the writes to ReplicaSets, then to the revision and the status."""
        writes = list(self._step())
        created = any(request.method == "POST" for request in writes)
        writes += self._record_revision()
        writes += update_status("deployments", self.deployment, self._status(created=created))
        return writes

    def _step(self) -> Iterator[Request]:
        is_paused = bool(self.deployment["spec"].get("paused"))
        annotated = self._annotate_new()
        if annotated is not None:
            yield annotated
        elif is_paused or self._is_scaled():
            yield from self._scale()
            if is_paused:
                yield from self._forget_old()
        elif self.is_rolling:
            yield from self._roll()
        else:
            yield from self._recreate()

    def _roll(self) -> Iterator[Request]:
        """Adds new pods as far as the surge allows, then removes old pods if enough remain."""
        if self.new is None:
            yield self._create_new(self._room_for_new(0))
            return

        # Fill the new ReplicaSet first; the old ones shrink in a later round.
        has = _replicas(self.new)
        wanted = self.replicas if has > self.replicas else self._room_for_new(has)
        if wanted != has:
            yield self._scaled_to(self.new, wanted)
            return

        sizes = self._old_sizes_while_rolling()
        changed = [one for one in self.old if sizes[name_of(one)] != _replicas(one)]
        for replica_set in changed:
            yield self._scaled_to(replica_set, sizes[name_of(replica_set)])
        if not changed and self._is_complete(status_of(self.deployment)):
            yield from self._forget_old()

    def _room_for_new(self, has: int) -> int:
        """Returns how many pods the new ReplicaSet may have now."""
        room = self.replicas + self.max_surge - sum(map(_replicas, self.all))
        return has + max(min(room, self.replicas - has), 0)

    def _old_sizes_while_rolling(self) -> dict[str, int]:
        """Returns the sizes of the old ReplicaSets by name.

        Unavailable pods are removed first, then others while enough are available.
        """
        assert self.new is not None
        sizes = {name_of(one): _replicas(one) for one in self.old}
        least = self.replicas - self.max_unavailable
        new_unavailable = _replicas(self.new) - _count([self.new], "availableReplicas")
        room = sum(sizes.values()) + _replicas(self.new) - least - new_unavailable
        if room <= 0:
            return sizes

        for replica_set in self.old:
            name = name_of(replica_set)
            unhealthy = sizes[name] - _count([replica_set], "availableReplicas")
            dropped = max(min(unhealthy, room), 0)
            sizes[name] -= dropped
            room -= dropped

        # Then remove available pods, as many as are not needed.
        spare = _count(self.all, "availableReplicas") - least
        for replica_set in self.old:
            name = name_of(replica_set)
            dropped = max(min(sizes[name], spare), 0)
            sizes[name] -= dropped
            spare -= dropped
        return sizes

    def _recreate(self) -> Iterator[Request]:
        """Removes all old pods, and creates the first new one when they are gone."""
        active = [one for one in self.old if _replicas(one)]
        for replica_set in active:
            yield self._scaled_to(replica_set, 0)
        if active or self._has_old_pods():
            return

        if self.new is None:
            yield self._create_new(self.replicas)
        elif _replicas(self.new) != self.replicas:
            yield self._scaled_to(self.new, self.replicas)
        elif self._is_complete(status_of(self.deployment)):
            yield from self._forget_old()

    def _has_old_pods(self) -> bool:
        """Returns True if an old pod exists; terminating pods count until they are gone."""
        for replica_set in self.old:
            if _count([replica_set], "replicas"):
                return True
            pods = children(self.objects, "pods", replica_set)
            if any(not has_ended(pod) for pod in pods):
                return True
        return False

    # ------------------------------------------------------------ other numbers, same template

    def _is_scaled(self) -> bool:
        """Returns True if `replicas` has changed since the ReplicaSets were annotated with it."""
        return any(
            DESIRED in _annotations(one) and _number(one, DESIRED) != self.replicas
            for one in self.all
            if _replicas(one)
        )

    def _scale(self) -> Iterator[Request]:
        """Gives the new number to the only active ReplicaSet, or divides it among several."""
        active = [one for one in self.all if _replicas(one)]
        if len(active) <= 1:
            latest = [*active, *([self.new] if self.new is not None else reversed(self.old))]
            if latest and self._needs_scaling(latest[0], self.replicas):
                yield self._scaled_to(latest[0], self.replicas)
            return

        # A complete rollout needs only the new ReplicaSet.
        if self.new is not None and self._is_saturated(self.new):
            for replica_set in self.old:
                if _replicas(replica_set):
                    yield self._scaled_to(replica_set, 0)
            return
        if self.is_rolling:
            sizes = self._proportional_sizes(active)
            for replica_set in active:
                if self._needs_scaling(replica_set, sizes[name_of(replica_set)]):
                    yield self._scaled_to(replica_set, sizes[name_of(replica_set)])

    def _is_saturated(self, replica_set: Document) -> bool:
        numbers = (
            _replicas(replica_set),
            _number(replica_set, DESIRED),
            _count([replica_set], "availableReplicas"),
        )
        return set(numbers) == {self.replicas}

    def _proportional_sizes(self, active: list[Document]) -> dict[str, int]:
        """Returns the new sizes by name. The largest ReplicaSet gets the remainder of rounding.

        Among ReplicaSets of equal size the newer one grows first and the older one shrinks first.
        """
        allowed = self.replicas + self.max_surge if self.replicas else 0
        to_add = allowed - sum(map(_replicas, active))
        ordered = sorted(active, key=_creation_order, reverse=to_add > 0)
        ordered.sort(key=_replicas, reverse=True)

        added = 0
        sizes = {}
        for replica_set in ordered:
            share = self._share_of(replica_set, to_add, added) if to_add != added else 0
            sizes[name_of(replica_set)] = _replicas(replica_set) + share
            added += share
        largest = name_of(ordered[0])
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
        return sizes

    def _share_of(self, replica_set: Document, to_add: int, added: int) -> int:
        has = _replicas(replica_set)
        share = -has
        if self.replicas:
            before = _number(replica_set, MAXIMUM) or status_of(self.deployment).get("replicas", 0)
            if not before:
                return 0
            # Round to the nearest number, and halves up.
            grown = has * (self.replicas + self.max_surge)
            share = (2 * grown + before) // (2 * before) - has
        left = to_add - added
        return min(share, left) if to_add > 0 else max(share, left)

    # ------------------------------------------------------------ writes

    def _create_new(self, replicas: int) -> Request:
        template, metadata = self.deployment["spec"]["template"], self.deployment["metadata"]
        digest = template_hash(template)
        from_template = template.get("metadata") or {}

        # The hash keeps the pods of two templates apart, in the labels and in the selector.
        labels = (from_template.get("labels") or {}) | {TEMPLATE_HASH: digest}
        selector = self.deployment["spec"].get("selector") or {}
        matched = (selector.get("matchLabels") or {}) | {TEMPLATE_HASH: digest}
        reference = controller_reference("apps/v1", "Deployment", self.deployment)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": self._copied_annotations() | self._numbers() | self._next_revision(),
                "ownerReferences": [reference | {"blockOwnerDeletion": True}],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": self.deployment["spec"].get("minReadySeconds") or 0,
                "selector": selector | {"matchLabels": matched},
                "template": template | {"metadata": from_template | {"labels": labels}},
            },
        }
        request = Request(
            method="POST", resource="replicasets", namespace=metadata["namespace"], body=body
        )
        return self._add_event(request, 0, replicas)

    def _numbers(self) -> Document:
        return {DESIRED: str(self.replicas), MAXIMUM: str(self.replicas + self.max_surge)}

    def _needs_scaling(self, replica_set: Document, replicas: int) -> bool:
        numbers = self._numbers().items()
        return (
            _replicas(replica_set) != replicas or not numbers <= _annotations(replica_set).items()
        )

    def _scaled_to(self, replica_set: Document, replicas: int) -> Request:
        metadata = replica_set["metadata"]
        annotations = _annotations(replica_set) | self._numbers()
        changed = {
            "metadata": metadata | {"annotations": annotations},
            "spec": replica_set["spec"] | {"replicas": replicas},
        }
        request = requests.update("replicasets", replica_set | changed)
        return self._add_event(request, _replicas(replica_set), replicas)

    def _add_event(self, request: Request, before: int, after: int) -> Request:
        """Adds an Event about the ReplicaSet's new size to the request."""
        if before == after:
            return request
        name, how = request.body["metadata"]["name"], "up" if after > before else "down"
        note = f"Scaled {how} replica set {name} from {before} to {after}"
        event = record_event("Deployment", self.deployment, "ScalingReplicaSet", note)
        return requests.with_then(request, event)

    def _forget_old(self) -> Iterator[Request]:
        """Yields deletions of the oldest ReplicaSets beyond the history limit."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        surplus = len(self.old) - (10 if limit is None else limit)
        by_revision = sorted(self.old, key=lambda one: _number(one, REVISION))
        for replica_set in by_revision[: max(surplus, 0)]:
            if not _replicas(replica_set) and not _count([replica_set], "replicas"):
                yield requests.delete("replicasets", replica_set)

    # ------------------------------------------------------------ revisions

    def _next_revision(self) -> Document:
        latest = max((_number(one, REVISION) for one in self.old), default=0)
        return {REVISION: str(latest + 1)}

    def _copied_annotations(self) -> Document:
        own = _annotations(self.deployment)
        return {name: value for name, value in own.items() if name not in _OWN_ANNOTATIONS}

    def _annotate_new(self) -> Request | None:
        """Returns an update of the new ReplicaSet's annotations, or None if they are current.

        A ReplicaSet that is reused by a rollback gets the next revision, and its history keeps the
        earlier ones.
        """
        if self.new is None:
            return None
        before = _annotations(self.new)
        annotations = before | self._copied_annotations()
        revision = self._next_revision()[REVISION]
        if _number(self.new, REVISION) < int(revision):
            annotations[REVISION] = revision
            if REVISION in before:
                earlier = [before[HISTORY]] if before.get(HISTORY) else []
                annotations[HISTORY] = ",".join([*earlier, before[REVISION]])

        seconds = self.deployment["spec"].get("minReadySeconds") or 0
        has_seconds = (self.new["spec"].get("minReadySeconds") or 0) == seconds
        if annotations == before and has_seconds:
            return None
        changed = {
            "metadata": self.new["metadata"] | {"annotations": annotations},
            "spec": self.new["spec"] | {"minReadySeconds": seconds},
        }
        return requests.update("replicasets", self.new | changed)

    def _record_revision(self) -> Iterator[Request]:
        """Yields a patch that writes the current revision to the Deployment."""
        if self.new is None or self._annotate_new() is not None:
            return
        revision = _annotations(self.new).get(REVISION)
        metadata = self.deployment["metadata"]
        if not revision or _annotations(self.deployment).get(REVISION) == revision:
            return
        yield Request(
            method="PATCH",
            resource="deployments",
            namespace=metadata["namespace"],
            name=metadata["name"],
            body={"metadata": {"uid": metadata["uid"], "annotations": {REVISION: revision}}},
            content_type=MERGE_PATCH,
        )

    # ------------------------------------------------------------ status

    def _status(self, *, created: bool) -> Document:
        available = _count(self.all, "availableReplicas")
        updated = [self.new] if self.new is not None else []
        status: Document = {
            "replicas": _count(self.all, "replicas"),
            "updatedReplicas": _count(updated, "replicas"),
            "readyReplicas": _count(self.all, "readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(sum(map(_replicas, self.all)) - available, 0),
        }
        conditions = {
            condition["type"]: condition
            for condition in status_of(self.deployment).get("conditions") or ()
        }
        enough = available >= self.replicas - self.max_unavailable
        reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
        has = "has" if enough else "does not have"
        message = f"Deployment {has} minimum availability."
        self._set(conditions, "Available", str(enough), reason, message)
        self._set_progressing(conditions, status, created=created)
        return status | {"conditions": list(conditions.values())}

    def _set_progressing(
        self, conditions: dict[str, Document], status: Document, *, created: bool
    ) -> None:
        if _deadline_of(self.deployment) is None:
            conditions.pop("Progressing", None)
            return

        name = "Progressing"
        current = conditions.get(name)
        reason = current["reason"] if current is not None else ""
        what = f"Deployment {name_of(self.deployment)!r}"
        if self.new is not None:
            what = f"ReplicaSet {name_of(self.new)!r}"
        what = what.replace("'", '"')

        # A paused rollout has no deadline; the condition says so once.
        if self.deployment["spec"].get("paused"):
            if reason not in ("ProgressDeadlineExceeded", "DeploymentPaused"):
                message = "Deployment is paused"
                self._set(conditions, name, "Unknown", "DeploymentPaused", message)
            return
        if reason == "DeploymentPaused":
            message = "Deployment is resumed"
            self._set(conditions, name, "Unknown", "DeploymentResumed", message)
            return
        if created:
            digest = template_hash(self.deployment["spec"]["template"])
            message = f'Created new replica set "{name_of(self.deployment)}-{digest}"'
            self._set(conditions, name, "True", "NewReplicaSetCreated", message)
            return

        rolled_out = reason == "NewReplicaSetAvailable"
        if rolled_out and status["replicas"] == status["updatedReplicas"]:
            return
        if self._is_complete(status | {"observedGeneration": self._generation}):
            message = f"{what} has successfully progressed."
            self._set(conditions, name, "True", "NewReplicaSetAvailable", message)
        elif self._has_progressed(status):
            # Every progress restarts the deadline.
            message = f"{what} is progressing."
            if current is not None and reason == "ReplicaSetUpdated":
                conditions[name] = current | {"lastUpdateTime": "", "reason": ""}
            self._set(conditions, name, "True", "ReplicaSetUpdated", message)
        elif current is not None and self._is_too_late(current):
            message = f"{what} has timed out progressing."
            self._set(conditions, name, "False", "ProgressDeadlineExceeded", message)

    @property
    def _generation(self) -> int:
        return int(self.deployment["metadata"].get("generation", 0))

    def _is_complete(self, status: Document) -> bool:
        names = ("updatedReplicas", "replicas", "availableReplicas")
        as_wanted = all((status.get(name) or 0) == self.replicas for name in names)
        return as_wanted and (status.get("observedGeneration") or 0) >= self._generation

    def _has_progressed(self, status: Document) -> bool:
        before = status_of(self.deployment)

        def count_old(status: Document) -> int:
            return int((status.get("replicas") or 0) - (status.get("updatedReplicas") or 0))

        # A rollout progresses when old pods disappear or new, ready or available ones are added.
        grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
        return count_old(status) < count_old(before) or any(
            status[name] > (before.get(name) or 0) for name in grown
        )

    def _is_too_late(self, current: Document) -> bool:
        if current["reason"] in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            return False
        deadline = _deadline_of(self.deployment)
        assert deadline is not None
        return requests.parse_time(current["lastUpdateTime"]) + deadline < self.now

    def _set(
        self, conditions: dict[str, Document], type_: str, status: str, reason: str, message: str
    ) -> None:
        """Sets the condition with the time of its last change, unless status and reason are the
        same.
        """
        current = conditions.get(type_, {})
        if (current.get("status"), current.get("reason")) == (status, reason):
            return
        moment = timestamps.rfc3339(self.now)
        since = current["lastTransitionTime"] if current.get("status") == status else moment
        conditions.pop(type_, None)  # the condition that changed last comes last
        conditions[type_] = {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastUpdateTime": moment,
            "lastTransitionTime": since,
        }
