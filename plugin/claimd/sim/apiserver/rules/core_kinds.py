"""Defaults and validation of pods, nodes, namespaces and config maps.

Only rules that matter to drivers and schedulers are implemented.
"""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api.document import Document

from . import formats
from .canonical import canonical_quantity
from .field_errors import FieldErrors

RESTART_POLICIES = ("Always", "OnFailure", "Never")
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
# Seconds that a pod stays on a node that is not ready or unreachable.
EVICTION_TOLERANCE = 300
NAMESPACE_FINALIZER = "kubernetes"
CONTAINERS = ("containers", "initContainers")
TOLERATION_OPERATORS = ("Equal", "Exists")
# Operators behind a feature gate that is off.
NUMERIC_OPERATORS = ("Lt", "Gt")
NODE_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# The most bytes of all values in a config map or a secret.
MAX_DATA = 1 << 20

# The fields of a pod's spec that may change after its creation.
MUTABLE_POD_FIELDS = (
    "activeDeadlineSeconds",
    "tolerations",
    "terminationGracePeriodSeconds",
    "schedulingGates",
)
IMMUTABLE_POD = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
NO_KEY = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
IMMUTABLE_MAP = "field is immutable when `immutable` is set"
ONE_SOURCE = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
NOT_BOTH = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"

# The fields that an object always has, with the values of fields that no writer has set.
NODE_INFO: Document = {
    "architecture": "",
    "bootID": "",
    "containerRuntimeVersion": "",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "kubeletVersion": "",
    "machineID": "",
    "operatingSystem": "",
    "osImage": "",
    "systemUUID": "",
}
GATED: Document = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
    "lastTransitionTime": None,
}
KUBELET_ENDPOINT: Document = {"kubeletEndpoint": {"Port": 0}}
EMPTY: dict[str, Document] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Namespace": {"spec": {}, "status": {}},
    "Node": {"spec": {}, "status": {"daemonEndpoints": KUBELET_ENDPOINT, "nodeInfo": NODE_INFO}},
}

# ---------------------------------------------------------------- defaults


def with_defaults(kind: str, obj: Document) -> Document:
    if kind == "Pod" and isinstance(obj.get("spec"), dict):
        return _pod_with_defaults(obj)
    if kind == "Node":
        return _node_with_defaults(obj)
    if kind == "Namespace" and obj["metadata"].get("name"):
        metadata = obj["metadata"]
        labels = dict(metadata.get("labels") or {})
        labels["kubernetes.io/metadata.name"] = metadata["name"]
        return obj | {"metadata": metadata | {"labels": labels}}
    return obj


def template_with_defaults(template: Any) -> Any:
    """Returns the pod template of a workload with the defaults that its pods would get."""
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return template
    return _pod_with_defaults(template)


def _pod_with_defaults(obj: Document) -> Document:
    given = {name: value for name, value in obj["spec"].items() if value not in (None, "")}
    spec: Document = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    } | given
    # Containers and init containers have the same defaults.
    for name in CONTAINERS:
        if spec.get(name):
            spec[name] = [_container_with_defaults(container) for container in spec[name]]

    pod = obj | {"spec": spec}
    status = obj.get("status")
    if status:
        pod["status"] = _with_condition_times(status, "lastProbeTime")
    return pod


def _container_with_defaults(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    # An image without a tag, or with the tag `latest`, is pulled at each start, unless it has a
    # digest.
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    is_latest = tag in ("", "latest") and "@" not in image
    container = {
        "imagePullPolicy": "Always" if is_latest else "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    } | container

    resources = dict(container["resources"] or {})
    for name in ("limits", "requests"):
        if resources.get(name):
            resources[name] = _canonical_quantities(resources[name])

    # A limit without a request is the request, too.
    if resources.get("limits"):
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})
    container["resources"] = resources
    if container.get("ports"):
        container["ports"] = [{"protocol": "TCP"} | port for port in container["ports"]]
    return container


def _node_with_defaults(obj: Document) -> Document:
    status = dict(obj.get("status") or {})
    for name in ("capacity", "allocatable"):
        if status.get(name):
            status[name] = _canonical_quantities(status[name])
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]
    status = _with_condition_times(status, "lastHeartbeatTime")
    status["daemonEndpoints"] = KUBELET_ENDPOINT | (status.get("daemonEndpoints") or {})
    status["nodeInfo"] = NODE_INFO | (status.get("nodeInfo") or {})
    return {"spec": {}} | obj | {"status": status}


def _with_condition_times(status: Document, checked: str) -> Document:
    """Adds null for the missing times of conditions, which these kinds always write."""
    if not status.get("conditions"):
        return dict(status)
    times = {checked: None, "lastTransitionTime": None}
    return status | {"conditions": [times | condition for condition in status["conditions"]]}


def _canonical_quantities(amounts: Document) -> Document:
    return {name: canonical_quantity(amount) for name, amount in amounts.items()}


# ---------------------------------------------------------------- preparation of new objects


def prepare_for_create(kind: str, obj: Document) -> Document:
    """Adds the initial state to a new object: a pod is pending, a node is not ready."""
    spec = obj.get("spec") or {}
    if kind == "Pod":
        return _new_pod(obj, spec)
    if kind == "Namespace":
        finalizers = dict.fromkeys([*(spec.get("finalizers") or ()), NAMESPACE_FINALIZER])
        return obj | {"spec": {"finalizers": list(finalizers)}, "status": {"phase": "Active"}}
    if kind == "Node":
        taints = [taint for taint in spec.get("taints") or () if taint.get("key") != NOT_READY]
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
        return obj | {"spec": spec | {"taints": taints}}
    return obj


def _new_pod(obj: Document, given: Document) -> Document:
    """Returns a new pod with the fields that the admission plugins of a real server add."""
    tolerations = list(given.get("tolerations") or ())
    keys = {(toleration.get("key"), toleration.get("effect")) for toleration in tolerations}
    for key in (NOT_READY, UNREACHABLE):
        # A pod that tolerates the taint already has chosen for how long.
        if keys.isdisjoint({(key, "NoExecute"), (key, None), (None, None)}):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": EVICTION_TOLERANCE,
                }
            )

    account = given.get("serviceAccountName") or given.get("serviceAccount") or "default"
    spec = given | {
        "serviceAccountName": account,
        "serviceAccount": account,
        "tolerations": tolerations,
    }
    status: Document = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [GATED]
    return obj | {"spec": spec, "status": status}


def _qos_class(spec: Document) -> str:
    """Returns the QoS class, by which a pod is evicted when its node runs short of resources."""
    containers = spec.get("containers") or ()
    resources = [container.get("resources") or {} for container in containers]
    if not any(one.get("limits") or one.get("requests") for one in resources):
        return "BestEffort"
    for one in resources:
        limits = one.get("limits") or {}
        if not {"cpu", "memory"} <= set(limits) or limits != (one.get("requests") or limits):
            return "Burstable"
    return "Guaranteed"


# ---------------------------------------------------------------- validation


def validate(errors: FieldErrors, kind: str, new: Document, old: Document | None) -> None:
    if kind == "ConfigMap":
        _validate_map(errors, new, old or {})
    elif kind == "Secret":
        _validate_secret(errors, new)
    elif kind == "Pod" and old is None:
        validate_pod_spec(errors, new.get("spec") or {}, "spec")
    elif kind == "Pod" and old is not None:
        _validate_pod_update(errors, new.get("spec") or {}, old.get("spec") or {})


def validate_status(errors: FieldErrors, kind: str, new: Document) -> None:
    if kind != "Pod":
        return
    spec, status = new.get("spec") or {}, new.get("status") or {}
    names = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    for index, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        if claim.get("name") not in names:
            why = "must match the name of an entry in `spec.resourceClaims`"
            path = f"status.resourceClaimStatuses[{index}].name"
            errors.invalid(path, claim.get("name", ""), why)


def validate_pod_spec(errors: FieldErrors, spec: Document, path: str) -> None:
    """Checks the spec of a new pod, or that of the template at this path."""
    claims = _validate_pod_claims(errors, spec.get("resourceClaims") or [], path)
    if not spec.get("containers"):
        errors.required(f"{path}.containers")
    for field in CONTAINERS:
        for index, container in enumerate(spec.get(field) or ()):
            _validate_container(errors, container, claims, f"{path}.{field}[{index}]")
    policy = spec.get("restartPolicy")
    if policy not in RESTART_POLICIES:
        errors.not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _validate_toleration(errors, toleration, f"{path}.tolerations[{index}]")


def _validate_toleration(errors: FieldErrors, toleration: Document, path: str) -> None:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        errors.each_invalid(f"{path}.key", key, formats.qualified_name(key))
    elif operator != "Exists":
        errors.invalid(f"{path}.operator", operator, NO_KEY)

    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.invalid(f"{path}.effect", effect, why)

    if operator in ("", "Equal"):
        if problems := formats.label_value(value):
            errors.invalid(f"{path}.operator", value, ";".join(problems))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            errors.invalid(f"{path}.operator", value, why)
    elif operator in NUMERIC_OPERATORS and errors.has_declarative_validation:
        known = (*TOLERATION_OPERATORS, *NUMERIC_OPERATORS)
        errors.not_supported(f"{path}.operator", operator, known)
    else:
        errors.not_supported(f"{path}.operator", operator, TOLERATION_OPERATORS)

    if effect and effect not in NODE_TAINT_EFFECTS:
        errors.not_supported(f"{path}.effect", effect, NODE_TAINT_EFFECTS)


def _validate_pod_update(errors: FieldErrors, spec: Document, old: Document) -> None:
    for field in CONTAINERS:
        containers, old_containers = spec.get(field) or [], old.get(field) or []
        if len(containers) != len(old_containers):
            why = "pod updates may not add or remove containers"
            errors.forbidden(f"spec.{field}", why)
            return
        for index, container in enumerate(containers):
            if not container.get("image"):
                errors.required(f"spec.{field}[{index}].image")

    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _validate_toleration(errors, toleration, f"spec.tolerations[{index}]")
    if _immutable_part(spec) != _immutable_part(old) or not _only_as_allowed(spec, old):
        errors.forbidden("spec", IMMUTABLE_POD)


def _immutable_part(spec: Document) -> Document:
    part = {name: value for name, value in spec.items() if name not in MUTABLE_POD_FIELDS}
    for field in CONTAINERS:
        if field in spec:
            part[field] = [_without_image(container) for container in spec[field]]
    return part


def _without_image(container: Document) -> Document:
    return {name: value for name, value in container.items() if name != "image"}


def _only_as_allowed(spec: Document, old: Document) -> bool:
    """Returns True if only allowed parts have changed.

    Tolerations may be added and scheduling gates removed. The grace period may become 1 if it was
    negative.
    """
    tolerations, gates = spec.get("tolerations") or [], spec.get("schedulingGates") or []
    old_tolerations, old_gates = old.get("tolerations") or [], old.get("schedulingGates") or []
    if any(toleration not in tolerations for toleration in old_tolerations):
        return False
    if any(gate not in old_gates for gate in gates):
        return False

    grace = spec.get("terminationGracePeriodSeconds")
    old_grace = old.get("terminationGracePeriodSeconds")
    return grace == old_grace or (grace == 1 and (old_grace or 0) < 0)


def _validate_pod_claims(errors: FieldErrors, claims: list[Document], path: str) -> set[str]:
    """Validates the claims of a pod, and returns their names, which containers refer to."""
    names: set[str] = set()
    for index, claim in enumerate(claims):
        claim_path, name = f"{path}.resourceClaims[{index}]", claim.get("name", "")
        if name in names:
            errors.duplicate(f"{claim_path}.name", name)
        else:
            _validate_name(errors, name, f"{claim_path}.name")
        names.add(name)
        _validate_claim_source(errors, claim, claim_path)
    return names


def _validate_claim_source(errors: FieldErrors, claim: Document, path: str) -> None:
    claim_name, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
    # Messages print the Go struct of the claim.
    shown = {
        "Name": claim.get("name", ""),
        "ResourceClaimName": claim_name,
        "ResourceClaimTemplateName": template,
    }
    if claim_name is None and template is None:
        errors.invalid(path, shown, ONE_SOURCE)
    elif claim_name is not None and template is not None:
        errors.invalid(path, shown, NOT_BOTH)

    if claim_name is not None:
        problems = formats.dns_subdomain(claim_name)
        errors.each_invalid(f"{path}.resourceClaimName", claim_name, problems)
    if template is not None:
        problems = formats.dns_subdomain(template)
        errors.each_invalid(f"{path}.resourceClaimTemplateName", template, problems)


def _validate_name(errors: FieldErrors, name: str, path: str) -> None:
    if name:
        errors.each_invalid(path, name, formats.dns_label(name))
    else:
        errors.required(path)


def _validate_container(
    errors: FieldErrors, container: Document, claims: set[str], path: str
) -> None:
    _validate_name(errors, container.get("name", ""), f"{path}.name")
    if not container.get("image"):
        errors.required(f"{path}.image")

    seen: list[Any] = []
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        item_path, name = f"{path}.resources.claims[{index}]", claim.get("name")
        if not name:
            errors.required(f"{item_path}.name")
        elif claim in seen or {"name": name} in seen:
            # An entry without a request means all requests of the claim.
            errors.duplicate(item_path, name)
        elif name not in claims:
            listed = ", ".join(sorted(claims))
            why = f"must be one of the names in pod.spec.resourceClaims: {listed}"
            errors.not_found(item_path, name, why)
        seen.append(claim)


def _validate_map(errors: FieldErrors, new: Document, old: Document) -> None:
    fields = ("data", "binaryData")
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", IMMUTABLE_MAP)
        for name in fields:
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden(name, IMMUTABLE_MAP)

    for field in fields:
        for name in sorted(new.get(field) or {}):
            errors.each_invalid(f"{field}[{name}]", name, formats.config_map_key(name))

    size = sum(len(text.encode()) for text in (new.get("data") or {}).values())
    size += sum(map(_decoded_size, (new.get("binaryData") or {}).values()))
    if size > MAX_DATA:
        # The cause belongs to the object as a whole.
        errors.too_long("[]", MAX_DATA)


def _validate_secret(errors: FieldErrors, new: Document) -> None:
    if sum(map(_decoded_size, (new.get("data") or {}).values())) > MAX_DATA:
        errors.too_long("data", MAX_DATA)


def _decoded_size(base64: str) -> int:
    """Returns the number of bytes that a text in base64 encodes."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")
