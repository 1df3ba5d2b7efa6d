"""Validation of request policies: the amounts of a shared capacity that a claim may request."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from claimd.kubernetes.api import limits, quantity
from claimd.kubernetes.api.document import Document

from .canonical import canonical_quantity
from .field_errors import FieldErrors

LARGEST = 2**63 - 1
NOT_BOTH = (
    "exactly one policy can be specified, cannot specify "
    '"validValues" and "validRange" at the same time'
)


def validate_policy(
    errors: FieldErrors, capacity: str, policy: Document, fractions: bool, path: str
) -> None:
    """Validates a policy. `fractions` allows ranges with amounts that are no whole numbers."""
    values, bounds = policy.get("validValues") or [], policy.get("validRange")
    default = policy.get("default")
    if not values and bounds is None:
        return
    if values and bounds is not None:
        errors.forbidden(path, NOT_BOTH)
        return

    kind = "validValues" if values else "validRange"
    if default is None:
        errors.required(f"{path}.default", f"required when {kind} is defined")
    elif values:
        _Values(errors, default or "0", capacity, values, f"{path}.validValues").validate(fractions)
    elif bounds is not None:
        _Range(errors, default or "0", capacity, bounds, f"{path}.validRange").validate(fractions)


class _Values:
    def __init__(
        self, errors: FieldErrors, default: str, capacity: str, values: Sequence[str], path: str
    ) -> None:
        self._errors, self._path = errors, path
        self._default, self._capacity, self._values = default, capacity, values
        self._amounts = [quantity.parse(value) for value in values]

    def validate(self, fractions: bool) -> None:
        for index, amount in enumerate(self._amounts[1:], start=1):
            if amount < self._amounts[index - 1]:
                self._invalid(index, "values must be sorted in ascending order")
        if self._errors.too_many(self._path, len(self._values), limits.VALID_VALUES):
            return

        limit = quantity.parse(self._capacity)
        for index, amount in enumerate(self._amounts):
            if amount > limit:
                self._invalid(index, f"option is larger than capacity value: {self._capacity}")

        # Without fractions, amounts are rounded up, so equal results are duplicates.
        comparable = self._amounts
        if not fractions:
            comparable = [_ceiling(amount) for amount in self._amounts]
        for index, amount in enumerate(comparable):
            if amount in comparable[:index]:
                self._errors.duplicate(f"{self._path}[{index}]", str(amount))

        if quantity.parse(self._default) not in self._amounts:
            why = "default value is not valid according to the requestPolicy"
            self._errors.invalid(self._path, self._default, why)

    def _invalid(self, index: int, why: str) -> None:
        self._errors.invalid(f"{self._path}[{index}]", self._values[index], why)


class _Range:
    """The amounts of a range by name: default, min, max and step, if they are set."""

    def __init__(
        self, errors: FieldErrors, default: str, capacity: str, bounds: Document, path: str
    ) -> None:
        self._errors, self._path, self._capacity = errors, path, capacity
        self._text: dict[str, str] = {"default": default}
        for name in ("min", "max", "step"):
            if bounds.get(name) is not None:
                self._text[name] = bounds[name]
        self._amount = {name: quantity.parse(text) for name, text in self._text.items()}

    def validate(self, fractions: bool) -> None:
        if "min" not in self._text:
            self._errors.required(f"{self._path}.min", "required when validRange is defined")
            return
        limit = quantity.parse(self._capacity)
        self._validate_bounds(limit)

        # Fractions are computed in thousandths. A finer amount is an error.
        is_fraction = any(amount.denominator != 1 for amount in self._amount.values())
        in_thousandths = fractions and is_fraction
        if in_thousandths and self._has_too_fine():
            return
        if "step" in self._text:
            self._validate_step(limit, 1000 if in_thousandths else 1)

    def _validate_bounds(self, limit: Fraction) -> None:
        amount, text = self._amount, self._text
        if amount["min"] > limit:
            self._invalid("min", f"min is larger than capacity value: {self._capacity}")
        if amount["default"] < amount["min"]:
            self._invalid("default", f"default is less than min: {text['min']}")
        if "max" not in text:
            return
        if amount["min"] > amount["max"]:
            # A real server reports this for the field max, with the value of min.
            why = f"min is larger than max: {text['max']}"
            self._errors.invalid(f"{self._path}.max", text["min"], why)

        if amount["max"] > limit:
            self._invalid("max", f"max is larger than capacity value: {self._capacity}")
        if amount["default"] > amount["max"]:
            self._invalid("default", f"default is more than max: {text['max']}")

    def _has_too_fine(self) -> bool:
        too_fine = [n for n, amount in self._amount.items() if (amount * 1000).denominator != 1]
        for name in too_fine:
            self._invalid(name, "value cannot be represented as a milli value")
        return bool(too_fine)

    def _validate_step(self, limit: Fraction, unit: int) -> None:
        step, amount = self._text["step"], self._amount
        if amount["step"] <= 0:
            self._invalid("step", "must be greater than zero")
            return

        first = amount["min"] + amount["step"]
        if first > limit:
            shown = str(float(first))
            if first.denominator == 1:
                shown = canonical_quantity(str(first))
            why = f"one step {shown} is larger than capacity value: {self._capacity}"
            self._invalid("step", why)

        if unit == 1 and self._has_out_of_range():
            return

        # Compare amounts in whole units, rounded up.
        units = {name: int(_ceiling(value * unit)) for name, value in amount.items()}
        for name in ("default", "max"):
            if name in units and (units[name] - units["min"]) % units["step"]:
                why = f"value is not a multiple of a given step ({step}) from ({self._text['min']})"
                self._errors.invalid(f"{self._path}.step", self._text[name], why)

    def _has_out_of_range(self) -> bool:
        out_of_range = False
        for name, amount in self._amount.items():
            if 0 <= amount <= LARGEST:
                continue
            out_of_range = True
            if amount < 0:
                self._invalid(name, "must be greater than or equal to 0")
            else:
                self._invalid(name, f"must not be larger than {LARGEST}")
        return out_of_range

    def _invalid(self, name: str, why: str) -> None:
        self._errors.invalid(f"{self._path}.{name}", self._text[name], why)


def _ceiling(amount: Fraction) -> Fraction:
    return Fraction(-(-amount // 1))
