"""The number of pods that an update may add or that may be missing: a number or a percentage."""

from __future__ import annotations

import re
from typing import Any

from .field_errors import FieldErrors

_PERCENT = re.compile("[0-9]+%")
WHY = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


def validate(errors: FieldErrors, value: Any, path: str) -> None:
    if isinstance(value, int):
        if value < 0:
            errors.invalid(path, value, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(str(value)):
        errors.invalid(path, value, WHY)
