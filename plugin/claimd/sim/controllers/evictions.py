"""The device taint eviction controller: evicts pods because of NoExecute taints of their devices.

The functions only compute requests, and `loops` decides in which order and how many at once it
sends them. The status of a DeviceTaintRule describes the rule's effect and progress.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import Objects, has_ended, includes, is_terminating, status_of, tolerates

RECORDER = requests.EventRecorder("device-taint-eviction", "Evicting")
CONDITION = "EvictionInProgress"
STATUS_PERIOD = 10.0  # seconds between two changes of a rule's status

Device = tuple[str, str, str]  # driver, pool, name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eviction:
    """A pod that will be evicted, with the time and the rules that cause it."""

    pod: Document
    at: float  # seconds since 1970
    rules: frozenset[str]  # names; empty if the taint comes from a ResourceSlice


def find_evictions(objects: Objects) -> list[Eviction]:
    """Returns an eviction for every pod that uses a device with an untolerated NoExecute taint."""
    tainted = {
        device: published
        for device, published in _published_devices(objects).items()
        if published.get("taints")
    }
    evictions = []
    for pod in objects["pods"].values():
        eviction = _eviction_of(objects, pod, tainted)
        if eviction is not None:
            evictions.append(eviction)
    return evictions


def sync(
    evictions: Iterable[Eviction], now: float
) -> tuple[list[Request], list[Request], float | None]:
    """Returns requests that mark the pods whose time has come, and requests that then delete them.

    The third value is the seconds until the next eviction, or None.
    """
    marks: list[Request] = []
    deletes: list[Request] = []
    waits = []
    for eviction in evictions:
        if eviction.at > now:
            waits.append(eviction.at - now)
            continue
        pod = eviction.pod
        if is_terminating(pod):
            continue

        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": timestamps.rfc3339(now),
        }
        marks.append(
            requests.create_event(
                pod, "Pod", "DeviceTaintManagerEviction", "Marking for deletion", RECORDER
            )
        )
        marks.append(requests.patch_status("pods", pod, {"conditions": [condition]}))
        deletes.append(requests.delete("pods", pod))
    return marks, deletes, min(waits, default=None)


def _eviction_of(
    objects: Objects, pod: Document, tainted: dict[Device, Document]
) -> Eviction | None:
    """Returns the pod's eviction at the earliest end of any of its claims, with all its rules."""
    metadata, spec = pod["metadata"], pod["spec"]
    if not spec.get("nodeName") or not spec.get("resourceClaims") or has_ended(pod):
        return None

    # The names of claims that were made from templates stand in the pod's status.
    created = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in status_of(pod).get("resourceClaimStatuses") or ()
    }
    ends: list[tuple[float, str]] = []
    for entry in spec["resourceClaims"]:
        name = entry.get("resourceClaimName") or created.get(entry["name"])
        claim = objects["resourceclaims"].get(f"{metadata['namespace']}/{name}")
        if claim is None:
            continue
        # The claim counts only while it is reserved for this pod.
        consumers = status_of(claim).get("reservedFor") or ()
        if any(includes(consumer, pod) for consumer in consumers):
            ends += _ends_of_claim(objects, claim, tainted)

    if not ends:
        return None
    return Eviction(
        pod=pod,
        at=min(at for at, _ in ends),
        rules=frozenset(rule for _, rule in ends if rule),
    )


def _ends_of_claim(
    objects: Objects, claim: Document, tainted: dict[Device, Document]
) -> Iterator[tuple[float, str]]:
    """Yields the time at which each taint ends the claim's use, with the name of its rule or ""."""
    for result in _results(claim):
        device = tainted.get((result["driver"], result["pool"], result["device"]), {})
        taints = [(taint, "") for taint in device.get("taints") or ()]
        for rule in objects["devicetaintrules"].values():
            if _selects(rule, result):
                taints.append((rule["spec"]["taint"], rule["metadata"]["name"]))

        for taint, rule_name in taints:
            if taint.get("effect") != "NoExecute":
                continue
            at = _end_of_toleration(taint, result.get("tolerations") or ())
            if at is not None:
                yield at, rule_name


def _end_of_toleration(taint: Document, tolerations: Sequence[Document]) -> float | None:
    """Returns the earliest end of a toleration; None if the taint is tolerated for ever."""
    seconds = []
    for toleration in tolerations:
        if toleration.get("effect") == "NoExecute" and tolerates(toleration, taint):
            if toleration.get("tolerationSeconds") is None:
                return None
            seconds.append(max(toleration["tolerationSeconds"], 0))

    since = 0.0
    if taint.get("timeAdded"):
        since = requests.parse_time(taint["timeAdded"])
    return since + min(seconds, default=0)


def _published_devices(objects: Objects) -> dict[Device, Document]:
    """Returns all devices of the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    for slice_ in objects["resourceslices"].values():
        pool = slice_["spec"]["pool"]
        key = slice_["spec"]["driver"], pool["name"]
        newest[key] = max(newest.get(key, 0), pool.get("generation", 0))

    devices = {}
    for slice_ in objects["resourceslices"].values():
        driver, pool = slice_["spec"]["driver"], slice_["spec"]["pool"]
        if pool.get("generation", 0) != newest[driver, pool["name"]]:
            continue
        for device in slice_["spec"].get("devices") or ():
            devices[driver, pool["name"], device["name"]] = device
    return devices


def _results(claim: Document) -> list[Document]:
    """Returns the devices that are allocated to the claim."""
    allocation = status_of(claim).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _selects(rule: Document, device: Document) -> bool:
    """Returns True if the rule selects the device; a rule without a selector selects no device."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    return all(selector.get(name) in (None, device[name]) for name in ("driver", "pool", "device"))


# ---------------------------------------------------------------- the status of rules


def sync_rules(
    objects: Objects, evictions: Sequence[Eviction], evicted: dict[str, int], now: float
) -> tuple[list[Request], float | None]:
    """Returns patches for the rules whose condition has changed, and the seconds until the next
    one.

    `evicted` counts the evicted pods by the rule's uid. A rule's status changes at most every
    `STATUS_PERIOD` seconds, not for every single pod.
    """
    wanted: list[Request] = []
    waits: list[float] = []
    for rule in objects["devicetaintrules"].values():
        before = _condition_of(rule)
        generation = rule["metadata"].get("generation", 0)
        current = before is not None and before.get("observedGeneration") == generation

        # The preview of a rule without effect is written once, when the rule is new or has changed.
        if rule["spec"]["taint"].get("effect") == "None" and current:
            continue
        uid = rule["metadata"]["uid"]
        condition = _build_condition(objects, rule, evictions, evicted.get(uid, 0))

        if before and {name: before.get(name) for name in condition} == condition:
            continue

        if before is not None and current:
            age = now - requests.parse_time(before["lastTransitionTime"])
            if age < STATUS_PERIOD:
                waits.append(STATUS_PERIOD - age)
                continue
        condition["lastTransitionTime"] = timestamps.rfc3339(now)
        wanted.append(requests.patch_status("devicetaintrules", rule, {"conditions": [condition]}))
    return wanted, min(waits, default=None)


def _condition_of(rule: Document) -> Document | None:
    for condition in status_of(rule).get("conditions") or ():
        if condition["type"] == CONDITION:
            return condition  # type: ignore[no-any-return]
    return None


def _build_condition(
    objects: Objects, rule: Document, evictions: Sequence[Eviction], evicted: int
) -> Document:
    effect = rule["spec"]["taint"].get("effect", "")
    pods, namespaces = _count_waiting(rule, evictions)

    status, reason, message = "False", "OtherEffect", "Only the effect NoExecute evicts pods."
    if effect == "None":
        reason, message = "NoEffect", _preview(objects, rule)
    elif effect == "NoExecute" and pods:
        need = "1 pod needs" if pods == 1 else f"{pods} pods need"
        where = "1 namespace." if namespaces == 1 else f"{namespaces} different namespaces."
        status, reason = "True", "PodsPendingEviction"
        message = f"{need} to be evicted in {where}"
    elif effect == "NoExecute":
        reason, message = ("Completed" if evicted else "NotStarted"), ""

    if evicted:
        gone = "1 pod" if evicted == 1 else f"{evicted} pods"
        message = f"{message} {gone} evicted since starting the controller.".strip()
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": rule["metadata"].get("generation", 0),
    }


def _preview(objects: Objects, rule: Document) -> str:
    """Describes the effect that the rule would have with NoExecute."""
    name = rule["metadata"]["name"]
    taint = rule["spec"]["taint"] | {"effect": "NoExecute"}
    evicting_rule = rule | {"spec": rule["spec"] | {"taint": taint}}
    evicting = {**objects, "devicetaintrules": {name: evicting_rule}}
    pods, namespaces = _count_waiting(rule, find_evictions(evicting))

    allocated = 0
    for claim in objects["resourceclaims"].values():
        allocated += sum(_selects(rule, result) for result in _results(claim))
    published = 0
    for driver, pool, device in _published_devices(objects):
        published += _selects(rule, {"driver": driver, "pool": pool, "device": device})

    where = "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"
    return (
        f"{published} published device{_plural(published)} selected. "
        f"{allocated} allocated device{_plural(allocated)} selected. "
        f"{pods} pod{_plural(pods)} would be evicted in {where} if the effect was NoExecute. "
        "This is told once: create the rule again to ask again."
    )


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _count_waiting(rule: Document, evictions: Sequence[Eviction]) -> tuple[int, int]:
    """Returns the number of pods that still wait for eviction by the rule, and of their namespaces."""
    waiting = [
        eviction.pod
        for eviction in evictions
        if rule["metadata"]["name"] in eviction.rules and not is_terminating(eviction.pod)
    ]
    return len(waiting), len({pod["metadata"]["namespace"] for pod in waiting})
