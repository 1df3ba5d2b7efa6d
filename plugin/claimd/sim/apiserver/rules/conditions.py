"""Validation of the conditions in a status: `metav1.Condition` by the rules of the API server."""

from __future__ import annotations

import re

from claimd.kubernetes.api.document import Document

from . import formats
from .field_errors import FieldErrors

STATUSES = ("False", "True", "Unknown")
MAX_REASON, MAX_MESSAGE = 1024, 32768
REASON_PATTERN = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    f"used for validation is '{REASON_PATTERN}')"
)


def validate_conditions(errors: FieldErrors, conditions: list[Document], path: str) -> None:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        item_path = f"{path}[{index}]"
        condition_type = condition.get("type", "")
        if condition_type in seen:
            errors.duplicate(f"{item_path}.type", condition_type)
        seen.add(condition_type)
        _validate(errors, condition, item_path)


def _validate(errors: FieldErrors, condition: Document, path: str) -> None:
    condition_type, status = condition.get("type", ""), condition.get("status", "")
    if not condition_type and errors.has_declarative_validation:
        errors.required(f"{path}.type", "is required")
    else:
        problems = formats.qualified_name(condition_type)
        errors.each_invalid(f"{path}.type", condition_type, problems)

    if status not in STATUSES:
        errors.not_supported(f"{path}.status", status, STATUSES)

    generation = condition.get("observedGeneration", 0)
    if generation < 0:
        why = "must be greater than or equal to zero"
        errors.invalid(f"{path}.observedGeneration", generation, why)
    if not condition.get("lastTransitionTime"):
        errors.required(f"{path}.lastTransitionTime")

    _validate_reason(errors, condition.get("reason", ""), f"{path}.reason")
    if len(condition.get("message", "")) > MAX_MESSAGE:
        errors.too_long(f"{path}.message", MAX_MESSAGE)


def _validate_reason(errors: FieldErrors, reason: str, path: str) -> None:
    if not reason:
        errors.required(path)
        return
    if not re.fullmatch(REASON_PATTERN, reason):
        errors.invalid(path, reason, REASON)
    if len(reason) > MAX_REASON:
        errors.too_long(path, MAX_REASON)
