"""Conditions in the status of an object: `metav1.Condition` as the API server checks it."""

from __future__ import annotations

import re

from ....api.document import Document
from . import texts
from .causes import Causes

REASON_PATTERN = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{REASON_PATTERN}')"
)


def check_conditions(causes: Causes, conditions: list[Document], at: str) -> None:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here = f"{at}[{index}]"
        kind = condition.get("type", "")
        if kind in seen:
            causes.duplicate(f"{here}.type", kind)
        seen.add(kind)
        _check(causes, condition, here)


def _check(causes: Causes, condition: Document, at: str) -> None:
    kind, reason = condition.get("type", ""), condition.get("reason", "")
    if not kind and causes.modern:
        causes.required(f"{at}.type", "is required")
    else:
        causes.texts(f"{at}.type", kind, texts.qualified(kind))
    if condition.get("status", "") not in ("False", "True", "Unknown"):
        causes.unsupported(
            f"{at}.status", condition.get("status", ""), ["False", "True", "Unknown"]
        )
    if condition.get("observedGeneration", 0) < 0:
        generation = condition["observedGeneration"]
        causes.invalid(
            f"{at}.observedGeneration", generation, "must be greater than or equal to zero"
        )
    if not condition.get("lastTransitionTime"):
        causes.required(f"{at}.lastTransitionTime")
    if not reason:
        causes.required(f"{at}.reason")
    else:
        if not re.fullmatch(REASON_PATTERN, reason):
            causes.invalid(f"{at}.reason", reason, REASON)
        if len(reason) > 1024:
            causes.too_long(f"{at}.reason", 1024)
    if len(condition.get("message", "")) > 32768:
        causes.too_long(f"{at}.message", 32768)
