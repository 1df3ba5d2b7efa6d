"""Pods, nodes, namespaces and configuration maps, as far as drivers and schedulers meet their
rules.
"""

from __future__ import annotations

from typing import Any

from ....api.document import Document
from . import texts
from .canonical import canonical
from .field_errors import FieldErrors

POLICIES = ("Always", "OnFailure", "Never")
NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
NODE_INFO = (
    *(
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
    ),
    *("machineID", "operatingSystem", "osImage", "systemUUID"),
)
EMPTY: dict[str, Document] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Namespace": {"spec": {}, "status": {}},
    "Node": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(NODE_INFO, ""),
        },
    },
}
IMMUTABLE = "field is immutable when `immutable` is set"
ONE_SOURCE = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
NOT_BOTH = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"


def with_defaults(kind: str, obj: Document) -> Document:
    if kind == "Pod" and isinstance(obj.get("spec"), dict):
        return _pod(obj)
    if kind == "Node":
        return _node(obj)
    if kind == "Namespace":
        metadata = obj["metadata"]
        labels = {"kubernetes.io/metadata.name": metadata["name"]} if metadata.get("name") else {}
        return obj | {"metadata": metadata | {"labels": (metadata.get("labels") or {}) | labels}}
    return obj


def begun(kind: str, obj: Document) -> Document:
    """What a new object has that nobody says: a pod waits, a node is not ready."""
    if kind == "Pod":
        spec = obj.get("spec") or {}
        tolerations = list(spec.get("tolerations") or ())
        keys = {(one.get("key"), one.get("effect")) for one in tolerations}
        for key in NOT_READY:
            if not keys & {(key, "NoExecute"), (key, None), (None, None)}:
                tolerations.append(
                    {
                        "key": key,
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 300,
                    }
                )
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec = spec | {"serviceAccountName": account, "serviceAccount": account}
        spec = (
            {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
            | spec
            | {"tolerations": tolerations}
        )
        return obj | {"spec": spec, "status": {"phase": "Pending", "qosClass": _quality(spec)}}
    if kind == "Namespace":
        finalizers = dict.fromkeys(
            [*((obj.get("spec") or {}).get("finalizers") or ()), "kubernetes"]
        )
        return obj | {"spec": {"finalizers": list(finalizers)}, "status": {"phase": "Active"}}
    if kind == "Node":
        spec = obj.get("spec") or {}
        taints = [taint for taint in spec.get("taints") or () if taint.get("key") != NOT_READY[0]]
        return obj | {
            "spec": spec | {"taints": [*taints, {"key": NOT_READY[0], "effect": "NoSchedule"}]}
        }
    return obj


def _pod(obj: Document) -> Document:
    said: Document = obj["spec"]
    spec: Document = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    } | {name: value for name, value in said.items() if value not in (None, "")}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_container(one) if isinstance(one, dict) else one for one in spec[name]]
    status = obj.get("status") or {}
    if status.get("conditions"):
        times = {"lastProbeTime": None, "lastTransitionTime": None}
        status = status | {"conditions": [times | condition for condition in status["conditions"]]}
    return obj | {"spec": spec} | ({"status": status} if status else {})


def _container(container: Document) -> Document:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    pull = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    made: Document = {
        "imagePullPolicy": pull,
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    } | container
    resources = dict(made["resources"] or {})
    for name in ("limits", "requests"):
        if resources.get(name):
            resources[name] = {what: canonical(amount) for what, amount in resources[name].items()}
    if resources.get("limits"):
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})
    made["resources"] = resources
    if made.get("ports"):
        made["ports"] = [{"protocol": "TCP"} | port for port in made["ports"]]
    return made


def _quality(spec: Document) -> str:
    """How a pod fares when its node runs short."""
    said = [container.get("resources") or {} for container in spec.get("containers") or ()]
    if not any(one.get("limits") or one.get("requests") for one in said):
        return "BestEffort"
    for one in said:
        limits = one.get("limits") or {}
        if not {"cpu", "memory"} <= set(limits) or limits != (one.get("requests") or limits):
            return "Burstable"
    return "Guaranteed"


def _node(obj: Document) -> Document:
    status = dict(obj.get("status") or {})
    for name in ("capacity", "allocatable"):
        if status.get(name):
            status[name] = {what: canonical(amount) for what, amount in status[name].items()}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]
    if status.get("conditions"):
        times = {"lastHeartbeatTime": None, "lastTransitionTime": None}
        status["conditions"] = [times | condition for condition in status["conditions"]]
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 0}} | (
        status.get("daemonEndpoints") or {}
    )
    status["nodeInfo"] = dict.fromkeys(NODE_INFO, "") | (status.get("nodeInfo") or {})
    return {"spec": {}} | obj | {"status": status}


# ---------------------------------------------------------------- checks


def check(errors: FieldErrors, kind: str, new: Document, old: Document | None) -> None:
    if kind == "Pod":
        _check_pod(errors, new.get("spec") or {}, None if old is None else old.get("spec") or {})
    elif kind == "ConfigMap":
        _check_map(errors, new, old or {})


def check_status(errors: FieldErrors, kind: str, new: Document) -> None:
    if kind != "Pod":
        return
    names = {one.get("name") for one in (new.get("spec") or {}).get("resourceClaims") or ()}
    for index, claim in enumerate((new.get("status") or {}).get("resourceClaimStatuses") or ()):
        if claim.get("name") not in names:
            why = "must match the name of an entry in `spec.resourceClaims`"
            errors.invalid(
                f"status.resourceClaimStatuses[{index}].name", claim.get("name", ""), why
            )


def _check_pod(errors: FieldErrors, spec: Document, old: Document | None) -> None:
    if old is not None:
        if _fixed(spec) != _fixed(old) or not _grown(spec, old):
            errors.forbidden("spec", MAY_CHANGE)
        return
    names = _check_claims(errors, spec.get("resourceClaims") or [])
    if not spec.get("containers"):
        errors.required("spec.containers")
    for place in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(place) or ()):
            _check_container(errors, container, names, f"spec.{place}[{index}]")
    if spec.get("restartPolicy") not in POLICIES:
        errors.not_supported("spec.restartPolicy", spec.get("restartPolicy"), POLICIES)


def _fixed(spec: Document) -> Document:
    def of(container: Document) -> Document:
        return {name: value for name, value in container.items() if name != "image"}

    free = (
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
    )
    rest = {name: value for name, value in spec.items() if name not in free}
    return rest | {
        name: [of(one) for one in spec[name]]
        for name in ("containers", "initContainers")
        if name in spec
    }


def _grown(spec: Document, old: Document) -> bool:
    """Tolerations may come, scheduling gates may go, and the grace period stays."""
    tolerations, gates = spec.get("tolerations") or [], spec.get("schedulingGates") or []
    grace, before = (
        spec.get("terminationGracePeriodSeconds"),
        old.get("terminationGracePeriodSeconds"),
    )
    return (
        all(one in tolerations for one in old.get("tolerations") or ())
        and all(one in (old.get("schedulingGates") or ()) for one in gates)
        and (grace == before or (grace == 1 and (before or 0) < 0))
    )


def _check_claims(errors: FieldErrors, claims: list[Document]) -> set[str]:
    names: set[str] = set()
    for index, claim in enumerate(claims):
        path, name = f"spec.resourceClaims[{index}]", claim.get("name", "")
        if name in names:
            errors.duplicate(f"{path}.name", name)
        else:
            errors.each_invalid(
                f"{path}.name", name, texts.label(name)
            ) if name else errors.required(f"{path}.name")
        names.add(name)
        one, other = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": one, "ResourceClaimTemplateName": other}
        if one is None and other is None:
            errors.invalid(path, shown, ONE_SOURCE)
        elif one is not None and other is not None:
            errors.invalid(path, shown, NOT_BOTH)
        for field, value in (("resourceClaimName", one), ("resourceClaimTemplateName", other)):
            if value is not None:
                errors.each_invalid(f"{path}.{field}", value, texts.subdomain(value))
    return names


def _check_container(errors: FieldErrors, container: Document, claims: set[str], path: str) -> None:
    name = container.get("name", "")
    errors.each_invalid(f"{path}.name", name, texts.label(name)) if name else errors.required(
        f"{path}.name"
    )
    if not container.get("image"):
        errors.required(f"{path}.image")
    known = ", ".join(sorted(claims))
    seen: list[Any] = []
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        item_path = f"{path}.resources.claims[{index}]"
        if not claim.get("name"):
            errors.required(f"{item_path}.name")
        elif claim in seen or {"name": claim["name"]} in seen:
            errors.duplicate(item_path, claim["name"])
        elif claim["name"] not in claims:
            errors.not_found(
                item_path,
                claim["name"],
                f"must be one of the names in pod.spec.resourceClaims: {known}",
            )
        seen.append(claim)


def _check_map(errors: FieldErrors, new: Document, old: Document) -> None:
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", IMMUTABLE)
        for name in ("data", "binaryData"):
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden(name, IMMUTABLE)
    for place in ("data", "binaryData"):
        for name in sorted(new.get(place) or {}):
            errors.each_invalid(f"{place}[{name}]", name, texts.config_key(name))
