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


def with_defaults(spec: Document) -> Document:
    """Returns the spec of a ResourcePoolStatusRequest with its defaults."""
    return spec if spec.get("limit") is not None else spec | {"limit": DEFAULT_LIMIT}


def with_new_time(new: Document, old: Document, now: str) -> Document:
    """Sets the time of a taint whose effect changes, unless the writer sets another time."""
    taint = (new.get("spec") or {}).get("taint") or {}
    before = (old.get("spec") or {}).get("taint") or {}
    same_effect = taint.get("effect") == before.get("effect")
    if same_effect or taint.get("timeAdded") != before.get("timeAdded"):
        return new
    return new | {"spec": new["spec"] | {"taint": taint | {"timeAdded": now}}}


def validate_rule(errors: FieldErrors, spec: Document, old: Document | None) -> None:
    """Checks the spec of a DeviceTaintRule."""
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


def validate_rule_status(errors: FieldErrors, new: Document) -> None:
    """Checks the status of a DeviceTaintRule."""
    conditions = (new.get("status") or {}).get("conditions") or []
    validate_conditions(errors, conditions, "status.conditions")
    errors.too_many("status.conditions", len(conditions), limits.CONDITIONS)


def validate_request_status(errors: FieldErrors, new: Document, old: Document) -> None:
    """Checks the status of a ResourcePoolStatusRequest, which is answered only once."""
    status, before = new.get("status"), old.get("status")
    if before is None:
        conditions = (status or {}).get("conditions") or []
        validate_conditions(errors, conditions, "status.conditions")
    elif status != before:
        shown = internal("ResourcePoolStatusRequestStatus", status or {}, "v1alpha3")
        errors.invalid("status", shown, "field is immutable")
