"""Pods whose devices have a NoExecute taint that their claims do not tolerate, or no longer: they
are deleted.

What a DeviceTaintRule does, and how far it is, is told in its status.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ... import timestamps
from ...api.document import Document
from .. import client
from ..client import Call
from .objects import World, has_ended

BY = client.EventRecorder("device-taint-eviction", "Evicting")
CONDITION = "EvictionInProgress"
STATUS_PERIOD = 10.0  # seconds between two changes of a rule's status

Device = tuple[str, str, str]  # driver, pool, name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Due:
    """A pod that has to go, when, and by which rules."""

    pod: Document
    at: float
    rules: frozenset[str]


def due(world: World) -> list[Due]:
    """Every pod that is there and has to go some time."""
    published = {device: one for device, one in _published(world).items() if one.get("taints")}
    return [found for pod in world["pods"].values() if (found := _of_pod(world, pod, published))]


def decide(dues: Iterable[Due], now: float) -> tuple[list[Call], list[Call], float | None]:
    """What marks the pods whose time has come, what deletes them, and the seconds until the next
    one's time.
    """
    marks: list[Call] = []
    deletes: list[Call] = []
    later = []
    for one in dues:
        if one.at > now:
            later.append(one.at - now)
            continue
        if _is_leaving(one.pod):
            continue
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": timestamps.rfc3339(now),
        }
        marks.append(
            client.event(one.pod, "Pod", "DeviceTaintManagerEviction", "Marking for deletion", BY)
        )
        marks.append(client.patch_status("pods", one.pod, {"conditions": [condition]}))
        deletes.append(client.delete("pods", one.pod))
    return marks, deletes, min(later, default=None)


def _of_pod(world: World, pod: Document, published: dict[Device, Document]) -> Due | None:
    metadata, spec = pod["metadata"], pod["spec"]
    if not spec.get("nodeName") or not spec.get("resourceClaims") or has_ended(pod):
        return None
    known = {
        one["name"]: one.get("resourceClaimName")
        for one in _status(pod).get("resourceClaimStatuses") or ()
    }
    found: list[tuple[float, str]] = []
    for entry in spec["resourceClaims"]:
        name = entry.get("resourceClaimName") or known.get(entry["name"])
        claim = world["resourceclaims"].get(f"{metadata['namespace']}/{name}")
        if claim and any(
            one["uid"] == metadata["uid"] for one in _status(claim).get("reservedFor") or ()
        ):
            found += _of_claim(world, claim, published)
    if not found:
        return None
    return Due(
        pod=pod, at=min(at for at, _ in found), rules=frozenset(rule for _, rule in found if rule)
    )


def _of_claim(
    world: World, claim: Document, published: dict[Device, Document]
) -> Iterator[tuple[float, str]]:
    """When each taint ends the claim's use, and the rule that it is from, if any."""
    allocation = _status(claim).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        device = published.get((result["driver"], result["pool"], result["device"]), {})
        taints = [(taint, "") for taint in device.get("taints") or ()]
        taints += [
            (rule["spec"]["taint"], rule["metadata"]["name"])
            for rule in world["devicetaintrules"].values()
            if _selects(rule, result)
        ]
        for taint, rule in taints:
            at = _end(taint, result.get("tolerations") or ())
            if taint.get("effect") == "NoExecute" and at is not None:
                yield at, rule


def _end(taint: Document, tolerations: Sequence[Document]) -> float | None:
    """None where the taint is tolerated for ever; the shortest of several times counts."""
    since = client.seconds(taint["timeAdded"]) if taint.get("timeAdded") else 0.0
    tolerated = [
        one for one in tolerations if one.get("effect") == "NoExecute" and _tolerates(one, taint)
    ]
    if any(one.get("tolerationSeconds") is None for one in tolerated):
        return None
    return since + min((max(one["tolerationSeconds"], 0) for one in tolerated), default=0)


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or bool(toleration.get("value", "") == taint.get("value", ""))


def _published(world: World) -> dict[Device, Document]:
    """All devices, of the newest generation of their pool."""
    newest: dict[tuple[str, str], int] = {}
    for one in world["resourceslices"].values():
        pool = one["spec"]["pool"]
        place = one["spec"]["driver"], pool["name"]
        newest[place] = max(newest.get(place, 0), pool.get("generation", 0))
    found = {}
    for one in world["resourceslices"].values():
        driver, pool = one["spec"]["driver"], one["spec"]["pool"]
        if pool.get("generation", 0) == newest[driver, pool["name"]]:
            for device in one["spec"].get("devices") or ():
                found[driver, pool["name"], device["name"]] = device
    return found


def _selects(rule: Document, result: Document) -> bool:
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    return all(selector.get(name) in (None, result[name]) for name in ("driver", "pool", "device"))


def _is_leaving(pod: Document) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _status(obj: Document) -> Document:
    return obj.get("status") or {}


# ---------------------------------------------------------------- what a rule's status says


def tell(
    world: World, dues: Sequence[Due], evicted: dict[str, int], now: float
) -> tuple[list[Call], float | None]:
    """Conditions of rules that say something else now, and when to look again at those that changed
    lately.
    """
    calls: list[Call] = []
    again: list[float] = []
    for rule in world["devicetaintrules"].values():
        old = next(
            (one for one in _status(rule).get("conditions") or () if one["type"] == CONDITION), None
        )
        current = old is not None and old.get("observedGeneration") == rule["metadata"].get(
            "generation", 0
        )
        if rule["spec"]["taint"].get("effect") == "None" and current:
            continue  # what would be is told once
        condition = _condition(world, rule, dues, evicted.get(rule["metadata"]["uid"], 0))
        if old and {name: old.get(name) for name in condition} == condition:
            continue
        since = now - client.seconds(old["lastTransitionTime"]) if old else STATUS_PERIOD
        if current and since < STATUS_PERIOD:
            again.append(STATUS_PERIOD - since)
            continue
        condition["lastTransitionTime"] = timestamps.rfc3339(now)
        calls.append(client.patch_status("devicetaintrules", rule, {"conditions": [condition]}))
    return calls, min(again, default=None)


def _condition(world: World, rule: Document, dues: Sequence[Due], evicted: int) -> Document:
    effect = rule["spec"]["taint"].get("effect", "")
    pods, spaces = _counted(rule, dues)
    status, reason, message = "False", "OtherEffect", "Only the effect NoExecute evicts pods."
    if effect == "None":
        reason, message = "NoEffect", _would_be(world, rule)
    elif effect == "NoExecute":
        reason, message = ("Completed" if evicted else "NotStarted"), ""
        if pods:
            need = "1 pod needs" if pods == 1 else f"{pods} pods need"
            where = "1 namespace." if spaces == 1 else f"{spaces} different namespaces."
            status, reason, message = (
                "True",
                "PodsPendingEviction",
                f"{need} to be evicted in {where}",
            )
    if evicted:
        gone = "1 pod" if evicted == 1 else f"{evicted} pods"
        message = f"{message} {gone} evicted since the controller was started.".strip()
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": rule["metadata"].get("generation", 0),
    }


def _would_be(world: World, rule: Document) -> str:
    """What the rule would do if it evicted."""
    name = rule["metadata"]["name"]
    spec = rule["spec"] | {"taint": rule["spec"]["taint"] | {"effect": "NoExecute"}}
    evicting = {**world, "devicetaintrules": {name: rule | {"spec": spec}}}
    pods, spaces = _counted(rule, due(evicting))
    results = [
        result
        for claim in world["resourceclaims"].values()
        for result in ((_status(claim).get("allocation") or {}).get("devices") or {}).get("results")
        or ()
    ]
    allocated = sum(_selects(rule, result) for result in results)
    published = sum(
        _selects(rule, {"driver": driver, "pool": pool, "device": device})
        for driver, pool, device in _published(world)
    )
    return (
        f"{published} published device{'' if published == 1 else 's'} selected. "
        f"{allocated} allocated device{'' if allocated == 1 else 's'} selected. "
        f"{pods} pod{'' if pods == 1 else 's'} would be evicted in "
        f"{'1 namespace' if spaces == 1 else f'{spaces} different namespaces'} if the effect was NoExecute. "
        "This is told once: make the rule anew to ask again."
    )


def _counted(rule: Document, dues: Sequence[Due]) -> tuple[int, int]:
    """The pods that are still to go because of the rule, and their namespaces."""
    waiting = [
        one.pod
        for one in dues
        if rule["metadata"]["name"] in one.rules and not _is_leaving(one.pod)
    ]
    return len(waiting), len({pod["metadata"]["namespace"] for pod in waiting})
