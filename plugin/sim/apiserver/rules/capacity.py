"""How much of a device's capacity may be asked for: the policies of devices that several claims
share.
"""

from __future__ import annotations

from fractions import Fraction

from ....api import limits, quantity
from ....api.document import Document
from .canonical import canonical
from .field_errors import FieldErrors

LARGEST = 2**63 - 1
BOTH = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'


def check_policy(
    errors: FieldErrors, value: str, policy: Document, fractions: bool, path: str
) -> None:
    """`fractions`: may a range have parts of one?"""
    values, bounds, default = (
        policy.get("validValues") or [],
        policy.get("validRange"),
        policy.get("default"),
    )
    if values and bounds is not None:
        errors.forbidden(path, BOTH)
    elif values and default is None:
        errors.required(f"{path}.default", "required when validValues is defined")
    elif values:
        _check_values(errors, default or "0", value, values, fractions, f"{path}.validValues")
    elif bounds is not None and default is None:
        errors.required(f"{path}.default", "required when validRange is defined")
    elif bounds is not None:
        _Range(errors, default or "0", value, bounds, f"{path}.validRange").check(fractions)


def _check_values(
    errors: FieldErrors, default: str, most: str, values: list[str], fractions: bool, path: str
) -> None:
    amounts = [quantity.parse(value) for value in values]
    for index, amount in enumerate(amounts[1:], start=1):
        if amount < amounts[index - 1]:
            errors.invalid(
                f"{path}[{index}]", values[index], "values must be sorted in ascending order"
            )
    if errors.too_many(path, len(values), limits.VALID_VALUES):
        return
    limit = quantity.parse(most)
    for index, amount in enumerate(amounts):
        if amount > limit:
            errors.invalid(
                f"{path}[{index}]", values[index], f"option is larger than capacity value: {most}"
            )
    keys = [amount if fractions else -(-amount // 1) for amount in amounts]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            errors.duplicate(f"{path}[{index}]", str(key))
    if quantity.parse(default) not in amounts:
        errors.invalid(path, default, "default value is not valid according to the requestPolicy")


class _Range:
    def __init__(
        self, errors: FieldErrors, default: str, capacity: str, bounds: Document, path: str
    ) -> None:
        self.errors, self.path, self.capacity = errors, path, capacity
        said = {"default": default} | {name: bounds.get(name) for name in ("min", "max", "step")}
        self.said: dict[str, str] = {name: text for name, text in said.items() if text is not None}
        self.amount: dict[str, Fraction] = {
            name: quantity.parse(text) for name, text in self.said.items()
        }

    def check(self, fractions: bool) -> None:
        if "min" not in self.said:
            self.errors.required(f"{self.path}.min", "required when validRange is defined")
            return
        limit = quantity.parse(self.capacity)
        self._above("min", "min", limit, "min is larger than capacity value", self.capacity)
        self._below("default", "min", "default is less than min")
        if "max" in self.said:
            self._above(
                "max", "min", self.amount["max"], "min is larger than max", self.said["max"]
            )
            self._above("max", "max", limit, "max is larger than capacity value", self.capacity)
            self._above(
                "default",
                "default",
                self.amount["max"],
                "default is more than max",
                self.said["max"],
            )
        thousandths = fractions and any(amount.denominator != 1 for amount in self.amount.values())
        if thousandths and self._unsafe():
            return
        if "step" in self.said:
            self._check_step(limit, 1000 if thousandths else 1)

    def _above(self, field: str, name: str, limit: Fraction, why: str, shown: str) -> None:
        if self.amount[name] > limit:
            self.errors.invalid(f"{self.path}.{field}", self.said[name], f"{why}: {shown}")

    def _below(self, name: str, limit: str, why: str) -> None:
        if self.amount[name] < self.amount[limit]:
            self.errors.invalid(
                f"{self.path}.{name}", self.said[name], f"{why}: {self.said[limit]}"
            )

    def _unsafe(self) -> bool:
        """Something is finer than a thousandth."""
        found = [name for name, amount in self.amount.items() if (amount * 1000).denominator != 1]
        for name in found:
            self.errors.invalid(
                f"{self.path}.{name}",
                self.said[name],
                "value cannot be represented as a milli value",
            )
        return bool(found)

    def _check_step(self, limit: Fraction, unit: int) -> None:
        path, step = f"{self.path}.step", self.said["step"]
        if self.amount["step"] <= 0:
            self.errors.invalid(path, step, "must be greater than zero")
            return
        first = self.amount["min"] + self.amount["step"]
        if first > limit:
            shown = canonical(str(first)) if first.denominator == 1 else str(float(first))
            self.errors.invalid(
                path, step, f"one step {shown} is larger than capacity value: {self.capacity}"
            )
        if unit == 1 and self._outside():
            return
        whole = {name: int(-(-amount * unit // 1)) for name, amount in self.amount.items()}
        for name in ("default", "max"):
            if name in whole and (whole[name] - whole["min"]) % whole["step"]:
                why = f"value is not a multiple of a given step ({step}) from ({self.said['min']})"
                self.errors.invalid(path, self.said[name], why)

    def _outside(self) -> bool:
        found = False
        for name, amount in self.amount.items():
            why = (
                "must be greater than or equal to 0"
                if amount < 0
                else f"must not be larger than {LARGEST}"
            )
            if not 0 <= amount <= LARGEST:
                self.errors.invalid(f"{self.path}.{name}", self.said[name], why)
                found = True
        return found
