"""The rules of PodGroups: what the API server adds to a new one, and what may change."""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api.document import Document

from . import formats
from .field_errors import FieldErrors

FINALIZER = "scheduling.k8s.io/podgroup-protection"
MOST_CLAIMS = 4
IMMUTABLE = (
    *("workloadRef", "schedulingConstraints", "resourceClaims"),
    *("disruptionMode", "priorityClassName", "priority"),
)
_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def with_finalizer(group: Document) -> Document:
    """Returns a new group that stays as long as pods of it run."""
    metadata = group["metadata"]
    finalizers = metadata.get("finalizers") or []
    if FINALIZER in finalizers:
        return group
    return group | {"metadata": metadata | {"finalizers": [*finalizers, FINALIZER]}}


def with_defaults(group: Document) -> Document:
    spec = group.get("spec") or {}
    if isinstance(spec, dict) and spec.get("disruptionMode") is None:
        return group | {"spec": spec | {"disruptionMode": {"single": {}}}}
    return group


def validate(errors: FieldErrors, new: Document, old: Document | None) -> None:
    spec = new.get("spec") or {}
    before = (old.get("spec") or {}) if old else None
    _validate_policy(errors, spec.get("schedulingPolicy") or {}, before)
    _validate_claims(errors, spec.get("resourceClaims") or [])

    for field in IMMUTABLE if before is not None else ():
        if spec.get(field) != (before or {}).get(field):
            errors.invalid(f"spec.{field}", spec.get(field), "field is immutable")


def _validate_policy(errors: FieldErrors, policy: Document, before: Document | None) -> None:
    path = "spec.schedulingPolicy"
    chosen = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if not chosen:
        errors.invalid_literal(path, "", "must specify one of: `basic`, `gang`")
    elif len(chosen) > 1:
        names = "{" + ", ".join(chosen) + "}"
        errors.invalid_literal(path, names, "must specify exactly one of: `basic`, `gang`")
    gang = policy.get("gang")
    if gang is not None:
        count = gang.get("minCount", 0)
        if count == 0:
            errors.required(f"{path}.gang.minCount")
        elif count < 1:
            errors.invalid(f"{path}.gang.minCount", count, "must be greater than or equal to 1")

    policy_before = (before or {}).get("schedulingPolicy") or {}
    if before is not None and (gang is None) != (policy_before.get("gang") is None):
        errors.invalid(f"{path}.gang", gang, "field may not be set or cleared once created")


def _validate_claims(errors: FieldErrors, claims: list[Any]) -> None:
    path = "spec.resourceClaims"
    errors.too_many(path, len(claims), MOST_CLAIMS)
    names = set()
    for index, claim in enumerate(claims):
        place, name = f"{path}[{index}]", claim.get("name", "")
        if name in names:
            errors.duplicate(place, {"name": name})
        names.add(name)
        if not name:
            errors.required(f"{place}.name")
        else:
            errors.each_invalid(f"{place}.name", name, formats.dns_label(name))
        chosen = [field for field in _SOURCES if claim.get(field)]
        if len(chosen) != 1:
            one_of = "`resourceClaimName`, `resourceClaimTemplateName`"
            exactly = "must specify exactly one of" if chosen else "must specify one of"
            errors.invalid_literal(place, "", f"{exactly}: {one_of}")


def validate_status(errors: FieldErrors, new: Document) -> None:
    names = {claim["name"] for claim in (new.get("spec") or {}).get("resourceClaims") or ()}
    statuses = (new.get("status") or {}).get("resourceClaimStatuses") or ()
    for index, status in enumerate(statuses):
        if status.get("name") not in names:
            path = f"status.resourceClaimStatuses[{index}].name"
            why = "must match the name of an entry in `spec.resourceClaims`"
            errors.invalid(path, status.get("name", ""), why)
