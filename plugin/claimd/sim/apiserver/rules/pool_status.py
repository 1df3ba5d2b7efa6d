"""Defaults and validation of DeviceTaintRules and ResourcePoolStatusRequests."""

from __future__ import annotations

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import formats
from .conditions import validate_conditions
from .dumps import internal
from .field_errors import FieldErrors
from .names import validate_driver, validate_pool
from .slices import validate_taint

# The default limit of pools in a status.
DEFAULT_LIMIT = 100


def with_defaults(kind: str, spec: Document) -> Document:
    if kind == "ResourcePoolStatusRequest" and spec.get("limit") is None:
        return spec | {"limit": DEFAULT_LIMIT}
    return spec


def with_new_time(new: Document, old: Document, now: str) -> Document:
    """Sets the time of a taint whose effect changes, unless the writer sets another time."""
    taint = (new.get("spec") or {}).get("taint") or {}
    before = (old.get("spec") or {}).get("taint") or {}
    same_effect = taint.get("effect") == before.get("effect")
    if same_effect or taint.get("timeAdded") != before.get("timeAdded"):
        return new
    return new | {"spec": new["spec"] | {"taint": taint | {"timeAdded": now}}}


def validate(errors: FieldErrors, kind: str, spec: Document, old: Document | None) -> None:
    """Checks a taint rule. The rules for pool status requests are all declared in the table."""
    if kind != "DeviceTaintRule":
        return
    selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    driver, pool, device = (selector.get(name) for name in ("driver", "pool", "device"))
    if driver is not None:
        validate_driver(errors, driver, f"{path}.driver")
    if pool is not None:
        validate_pool(errors, pool, f"{path}.pool")
    if device is not None:
        errors.each_invalid(f"{path}.device", device, formats.dns_label(device))

    old_taint = None if not old else old.get("taint") or {}
    validate_taint(errors, spec.get("taint") or {}, old_taint, "spec.taint")


def validate_status(errors: FieldErrors, kind: str, new: Document, old: Document) -> None:
    status, before = new.get("status"), old.get("status")
    conditions = (status or {}).get("conditions") or []
    if kind == "ResourcePoolStatusRequest" and before is not None:
        # A request is answered only once.
        if status != before:
            shown = internal("ResourcePoolStatusRequestStatus", status or {}, "v1alpha3")
            errors.invalid("status", shown, "field is immutable")
    elif kind == "ResourcePoolStatusRequest":
        validate_conditions(errors, conditions, "status.conditions")
    elif kind == "DeviceTaintRule":
        validate_conditions(errors, conditions, "status.conditions")
        errors.too_many("status.conditions", len(conditions), limits.CONDITIONS)
