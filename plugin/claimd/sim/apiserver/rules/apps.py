"""Deployments, ReplicaSets, DaemonSets and StatefulSets: their defaults and their validation.

StatefulSets are for Kubernetes' own controllers. They would fail without the defaults.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from . import amounts, core_kinds
from .field_errors import FieldErrors

_DEFAULTS: dict[str, Document] = {
    "Deployment": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "ReplicaSet": {"replicas": 1},
    "DaemonSet": {"revisionHistoryLimit": 10},
    "StatefulSet": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
    },
}
# The field of the spec for the update strategy, and the defaults of a rolling update.
_ROLLING: dict[str, tuple[str, Document]] = {
    "Deployment": ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "DaemonSet": ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
    "StatefulSet": ("updateStrategy", {"partition": 0, "maxUnavailable": 1}),
}


def with_defaults(kind: str, obj: Document) -> Document:
    """Returns the object with the defaults of its kind. Objects of other kinds stay as they are."""
    given = obj.get("spec")
    if kind not in _DEFAULTS or not isinstance(given, dict):
        return obj

    said = {name: value for name, value in given.items() if value is not None}
    spec = _DEFAULTS[kind] | said
    if "template" in spec:
        spec["template"] = core_kinds.template_with_defaults(spec["template"])
    if kind in _ROLLING:
        field, rolling = _ROLLING[kind]
        spec[field] = _strategy(given.get(field) or {}, rolling)
    return obj | {"spec": spec}


def validate(errors: FieldErrors, kind: str, obj: Document) -> None:
    """Checks the amounts of a rolling update, which no controller can use if they are invalid."""
    if kind not in _ROLLING:
        return
    field, _ = _ROLLING[kind]
    rolling = ((obj.get("spec") or {}).get(field) or {}).get("rollingUpdate") or {}
    for name, value in sorted(rolling.items()):
        amounts.validate(errors, value, f"spec.{field}.rollingUpdate.{name}")


def _strategy(given: Document, rolling: Document) -> Document:
    strategy = given | {"type": given.get("type") or "RollingUpdate"}
    if strategy["type"] == "RollingUpdate":
        said = strategy.get("rollingUpdate") or {}
        given_amounts = {name: value for name, value in said.items() if value is not None}
        strategy["rollingUpdate"] = rolling | given_amounts
    return strategy
