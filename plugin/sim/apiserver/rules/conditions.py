"""Conditions in the status of an object: `metav1.Condition` as the API server checks it."""

from __future__ import annotations

import re

from ....api.document import Document
from . import texts
from .field_errors import FieldErrors

REASON_PATTERN = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{REASON_PATTERN}')"
)


def check_conditions(errors: FieldErrors, conditions: list[Document], path: str) -> None:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        item_path = f"{path}[{index}]"
        kind = condition.get("type", "")
        if kind in seen:
            errors.duplicate(f"{item_path}.type", kind)
        seen.add(kind)
        _check(errors, condition, item_path)


def _check(errors: FieldErrors, condition: Document, path: str) -> None:
    kind, reason = condition.get("type", ""), condition.get("reason", "")
    if not kind and errors.modern:
        errors.required(f"{path}.type", "is required")
    else:
        errors.each_invalid(f"{path}.type", kind, texts.qualified(kind))
    if condition.get("status", "") not in ("False", "True", "Unknown"):
        errors.not_supported(
            f"{path}.status", condition.get("status", ""), ["False", "True", "Unknown"]
        )
    if condition.get("observedGeneration", 0) < 0:
        generation = condition["observedGeneration"]
        errors.invalid(
            f"{path}.observedGeneration", generation, "must be greater than or equal to zero"
        )
    if not condition.get("lastTransitionTime"):
        errors.required(f"{path}.lastTransitionTime")
    if not reason:
        errors.required(f"{path}.reason")
    else:
        if not re.fullmatch(REASON_PATTERN, reason):
            errors.invalid(f"{path}.reason", reason, REASON)
        if len(reason) > 1024:
            errors.too_long(f"{path}.reason", 1024)
    if len(condition.get("message", "")) > 32768:
        errors.too_long(f"{path}.message", 32768)
