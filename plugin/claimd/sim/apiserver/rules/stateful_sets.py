"""Defaults and validation of StatefulSets."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..types import selectors
from . import amounts, core_kinds
from .field_errors import FieldErrors

POLICIES = ("OrderedReady", "Parallel")
STRATEGIES = ("OnDelete", "RollingUpdate")
_IMMUTABLE = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")


def with_defaults(stateful_set: Document) -> Document:
    given = stateful_set.get("spec")
    if not isinstance(given, dict):
        return stateful_set

    spec: Document = {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
    } | {name: value for name, value in given.items() if value not in (None, "")}
    if "template" in spec:
        spec["template"] = core_kinds.template_with_defaults(spec["template"])
    spec["updateStrategy"] = _strategy(given.get("updateStrategy") or {})
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    retention |= given.get("persistentVolumeClaimRetentionPolicy") or {}
    spec["persistentVolumeClaimRetentionPolicy"] = retention
    return stateful_set | {"spec": spec}


def _strategy(given: Document) -> Document:
    strategy = dict(given)
    if not strategy.get("type"):
        strategy |= {"type": "RollingUpdate", "rollingUpdate": given.get("rollingUpdate") or {}}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        rolling = {"partition": 0, "maxUnavailable": 1} | strategy["rollingUpdate"]
        strategy["rollingUpdate"] = rolling
    return strategy


def validate(errors: FieldErrors, stateful_set: Document, old: Document | None) -> None:
    spec = stateful_set.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if policy not in POLICIES:
        why = f"must be '{POLICIES[0]}' or '{POLICIES[1]}'"
        errors.invalid("spec.podManagementPolicy", policy, why)

    strategy = (spec.get("updateStrategy") or {}).get("type")
    if strategy not in STRATEGIES:
        why = f"must be '{STRATEGIES[1]}' or '{STRATEGIES[0]}'"
        errors.invalid("spec.updateStrategy", spec.get("updateStrategy"), why)
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        value = spec.get(name)
        if value is not None and value < 0:
            errors.invalid(f"spec.{name}", value, "must be greater than or equal to 0")

    start = (spec.get("ordinals") or {}).get("start") or 0
    if start < 0:
        errors.invalid("spec.ordinals.start", start, "must be greater than or equal to 0")
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if rolling.get("maxUnavailable") is not None:
        path = "spec.updateStrategy.rollingUpdate.maxUnavailable"
        amounts.validate(errors, rolling["maxUnavailable"], path)

    # The rest of the spec concerns the pods.
    _validate_template(errors, spec)
    for name in _IMMUTABLE if old is not None else ():
        if spec.get(name) != ((old or {}).get("spec") or {}).get(name):
            errors.invalid(f"spec.{name}", spec.get(name), "field is immutable")


def _validate_template(errors: FieldErrors, spec: Document) -> None:
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        errors.required("spec.selector")
    elif not selectors.matches(selector, {"metadata": {"labels": labels}}):
        why = "`selector` does not match template `labels`"
        errors.invalid("spec.template.metadata.labels", labels, why)

    pod_spec = template.get("spec") or {}
    core_kinds.validate_pod_spec(errors, pod_spec, "spec.template.spec")
    if pod_spec.get("restartPolicy", "Always") != "Always":
        path = "spec.template.spec.restartPolicy"
        errors.not_supported(path, pod_spec["restartPolicy"], ("Always",))
