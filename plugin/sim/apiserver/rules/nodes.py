"""Node selectors and node names, wherever an object of the resource API has them."""

from __future__ import annotations

from ....api.document import Document
from . import texts
from .field_errors import FieldErrors

MANY = ("In", "NotIn")


def check_selector(errors: FieldErrors, selector: Document, path: str) -> None:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        errors.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        item_path = f"{path}.nodeSelectorTerms[{index}]"
        for number, requirement in enumerate(term.get("matchExpressions") or ()):
            _check_labels(errors, requirement, f"{item_path}.matchExpressions[{number}]")
        for number, requirement in enumerate(term.get("matchFields") or ()):
            _check_field(errors, requirement, f"{item_path}.matchFields[{number}]")


def _check_labels(errors: FieldErrors, requirement: Document, path: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in MANY:
        if not values:
            errors.required(
                f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    errors.each_invalid(
        f"{path}.key", requirement.get("key", ""), texts.qualified(requirement.get("key", ""))
    )


def _check_field(errors: FieldErrors, requirement: Document, path: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in MANY:
        if len(values) != 1:
            why = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            errors.required(f"{path}.values", why)
    else:
        errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    if requirement.get("key") == "metadata.name":
        for index, value in enumerate(values):
            errors.each_invalid(f"{path}.values[{index}]", value, texts.subdomain(value))
    else:
        errors.invalid(f"{path}.key", requirement.get("key", ""), "not a valid field selector key")


def check_name(errors: FieldErrors, name: str, path: str) -> None:
    errors.each_invalid(path, name, texts.subdomain(name))
