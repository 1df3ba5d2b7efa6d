"""DeviceTaintRules, and requests for the state of a pool, which a controller answers in their
status.
"""

from __future__ import annotations

from ....api import limits
from ....api.document import Document
from . import texts
from .conditions import check_conditions
from .dumps import inner
from .field_errors import FieldErrors
from .names import check_driver, check_pool
from .slices import check_taint

LIMIT = 100  # pools in an answer, if nothing else is asked for


def with_defaults(kind: str, spec: Document) -> Document:
    if kind == "ResourcePoolStatusRequest" and spec.get("limit") is None:
        return spec | {"limit": LIMIT}
    return spec


def with_new_time(new: Document, old: Document, now: str) -> Document:
    """A taint whose effect changes begins anew."""
    taint = (new.get("spec") or {}).get("taint") or {}
    before = (old.get("spec") or {}).get("taint") or {}
    if taint.get("effect") == before.get("effect") or taint.get("timeAdded") != before.get(
        "timeAdded"
    ):
        return new
    return new | {"spec": new["spec"] | {"taint": taint | {"timeAdded": now}}}


def check(errors: FieldErrors, kind: str, spec: Document, old: Document | None) -> None:
    if kind != "DeviceTaintRule":
        return  # all that a request says is declared
    selector = spec.get("deviceSelector") or {}
    path = "spec.deviceSelector"
    if selector.get("driver") is not None:
        check_driver(errors, selector["driver"], f"{path}.driver")
    if selector.get("pool") is not None:
        check_pool(errors, selector["pool"], f"{path}.pool")
    if selector.get("device") is not None:
        errors.each_invalid(f"{path}.device", selector["device"], texts.label(selector["device"]))
    check_taint(errors, spec.get("taint") or {}, old and (old.get("taint") or {}), "spec.taint")


def check_status(errors: FieldErrors, kind: str, new: Document, old: Document) -> None:
    conditions = (new.get("status") or {}).get("conditions") or []
    if kind == "ResourcePoolStatusRequest":
        if old.get("status") is not None:
            if new.get("status") != old["status"]:
                shown = inner(
                    "ResourcePoolStatusRequestStatus", new.get("status") or {}, "v1alpha3"
                )
                errors.invalid("status", shown, "field is immutable")
            return
        check_conditions(errors, conditions, "status.conditions")
    elif kind == "DeviceTaintRule":
        check_conditions(errors, conditions, "status.conditions")
        errors.too_many("status.conditions", len(conditions), limits.CONDITIONS)
