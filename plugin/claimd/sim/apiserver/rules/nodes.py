"""Validation of node selectors and node names in objects of the resource API."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from . import formats
from .field_errors import FieldErrors

SET_OPERATORS = ("In", "NotIn")
NOT_AN_OPERATOR = "not a valid selector operator"


def validate_selector(errors: FieldErrors, selector: Document, path: str) -> None:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        why = "must have at least one node selector term"
        errors.required(f"{path}.nodeSelectorTerms", why)
    for index, term in enumerate(terms):
        term_path = f"{path}.nodeSelectorTerms[{index}]"
        for number, requirement in enumerate(term.get("matchExpressions") or ()):
            _validate_expression(errors, requirement, f"{term_path}.matchExpressions[{number}]")
        for number, requirement in enumerate(term.get("matchFields") or ()):
            _validate_field(errors, requirement, f"{term_path}.matchFields[{number}]")


def _validate_expression(errors: FieldErrors, requirement: Document, path: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    values_path = f"{path}.values"
    if operator in SET_OPERATORS:
        if not values:
            errors.required(values_path, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.forbidden(values_path, why)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.required(values_path, why)
    else:
        errors.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)

    key = requirement.get("key", "")
    errors.each_invalid(f"{path}.key", key, formats.qualified_name(key))


def _validate_field(errors: FieldErrors, requirement: Document, path: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator not in SET_OPERATORS:
        errors.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    elif len(values) != 1:
        when = "when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required(f"{path}.values", f"must be only one value {when}")

    key = requirement.get("key", "")
    if key != "metadata.name":
        errors.invalid(f"{path}.key", key, "not a valid field selector key")
        return

    for index, value in enumerate(values):
        errors.each_invalid(f"{path}.values[{index}]", value, formats.dns_subdomain(value))


def validate_name(errors: FieldErrors, name: str, path: str) -> None:
    errors.each_invalid(path, name, formats.dns_subdomain(name))
