"""Node selectors and node names, wherever an object of the resource API has them."""

from __future__ import annotations

from ....api.document import Document
from . import texts
from .causes import Causes

MANY = ("In", "NotIn")


def check_selector(causes: Causes, selector: Document, at: str) -> None:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        causes.required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        here = f"{at}.nodeSelectorTerms[{index}]"
        for number, requirement in enumerate(term.get("matchExpressions") or ()):
            _check_labels(causes, requirement, f"{here}.matchExpressions[{number}]")
        for number, requirement in enumerate(term.get("matchFields") or ()):
            _check_field(causes, requirement, f"{here}.matchFields[{number}]")


def _check_labels(causes: Causes, requirement: Document, at: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in MANY:
        if not values:
            causes.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            causes.forbidden(
                f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            causes.required(
                f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        causes.invalid(f"{at}.operator", operator, "not a valid selector operator")
    causes.texts(
        f"{at}.key", requirement.get("key", ""), texts.qualified(requirement.get("key", ""))
    )


def _check_field(causes: Causes, requirement: Document, at: str) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in MANY:
        if len(values) != 1:
            why = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            causes.required(f"{at}.values", why)
    else:
        causes.invalid(f"{at}.operator", operator, "not a valid selector operator")
    if requirement.get("key") == "metadata.name":
        for index, value in enumerate(values):
            causes.texts(f"{at}.values[{index}]", value, texts.subdomain(value))
    else:
        causes.invalid(f"{at}.key", requirement.get("key", ""), "not a valid field selector key")


def check_name(causes: Causes, name: str, at: str) -> None:
    causes.texts(at, name, texts.subdomain(name))
