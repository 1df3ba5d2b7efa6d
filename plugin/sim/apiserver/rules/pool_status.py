"""DeviceTaintRules, and requests for the state of a pool, which a controller answers in their
status.
"""

from __future__ import annotations

from ....api import limits
from ....api.document import Document
from . import texts
from .causes import Causes
from .conditions import check_conditions
from .dumps import inner
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


def check(causes: Causes, kind: str, spec: Document, old: Document | None) -> None:
    if kind != "DeviceTaintRule":
        return  # all that a request says is declared
    selector = spec.get("deviceSelector") or {}
    at = "spec.deviceSelector"
    if selector.get("driver") is not None:
        check_driver(causes, selector["driver"], f"{at}.driver")
    if selector.get("pool") is not None:
        check_pool(causes, selector["pool"], f"{at}.pool")
    if selector.get("device") is not None:
        causes.texts(f"{at}.device", selector["device"], texts.label(selector["device"]))
    check_taint(causes, spec.get("taint") or {}, old and (old.get("taint") or {}), "spec.taint")


def check_status(causes: Causes, kind: str, new: Document, old: Document) -> None:
    conditions = (new.get("status") or {}).get("conditions") or []
    if kind == "ResourcePoolStatusRequest":
        if old.get("status") is not None:
            if new.get("status") != old["status"]:
                shown = inner(
                    "ResourcePoolStatusRequestStatus", new.get("status") or {}, "v1alpha3"
                )
                causes.invalid("status", shown, "field is immutable")
            return
        check_conditions(causes, conditions, "status.conditions")
    elif kind == "DeviceTaintRule":
        check_conditions(causes, conditions, "status.conditions")
        causes.too_many("status.conditions", len(conditions), limits.CONDITIONS)
