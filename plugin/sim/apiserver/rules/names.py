"""The names that several kinds of the resource API have: drivers, pools, attributes. They look
alike in all of them.
"""

from __future__ import annotations

from ....api import limits
from ..types.status_errors import Cause
from . import texts
from .causes import Causes, quoted


def check_driver(causes: Causes, name: str, at: str, declared: bool = False) -> None:
    if not name:
        causes.required(at, declared=declared)
        if causes.modern:
            return
    if len(name) > limits.DRIVER_NAME and causes.old:
        causes.found.append(
            Cause(
                "FieldValueTooLong", f"Too long: must have at most {limits.DRIVER_NAME} bytes", at
            )
        )
    elif len(name) > limits.DRIVER_NAME:
        causes.too_long(at, limits.DRIVER_NAME, declared)
    causes.texts(at, name, texts.subdomain(name.lower()), declared)


def check_pool(causes: Causes, name: str, at: str, declared: bool = False) -> None:
    if not name:
        causes.required(at, declared=declared)
        return
    if len(name) > limits.POOL_NAME:
        causes.too_long(at, limits.POOL_NAME, declared)
    for part in pool_parts(name):
        causes.texts(at, part, texts.subdomain(part), declared)


def pool_parts(name: str) -> list[str]:
    return name.split("/")


def check_qualified(causes: Causes, name: str, at: str, declared: bool = False) -> None:
    """An attribute or a capacity: an identifier, perhaps with a domain."""
    parts = name.split("/")
    if len(parts) == 1:
        _identifier(causes, name, at, declared)
    elif len(parts) == 2:
        if not parts[0]:
            _empty(
                causes,
                at,
                "the prefix must not be empty" if causes.old else "the domain must not be empty",
                declared,
            )
        else:
            check_driver(causes, parts[0], at, declared)
        if not parts[1]:
            _empty(causes, at, "the name must not be empty", declared)
        else:
            _identifier(causes, parts[1], at, declared)


def _empty(causes: Causes, at: str, why: str, declared: bool) -> None:
    if causes.modern:
        causes.invalid(at, "", why, declared)
    else:
        causes.required(at, why, declared)


def check_fully_qualified(causes: Causes, name: str, at: str) -> None:
    """As it is declared: other words for the same."""
    domain, slash, identifier = name.partition("/")
    if slash:
        if not domain:
            causes.invalid(at, "", "prefix must not be empty")
        else:
            causes.texts(at, domain, texts.subdomain(domain))
        if not identifier:
            causes.invalid(at, "", "name must not be empty")
        else:
            _identifier(causes, identifier, at, False)
        return
    _identifier(causes, name, at, False)
    causes.invalid(at, name, texts.FULLY_QUALIFIED)


def _identifier(causes: Causes, text: str, at: str, declared: bool) -> None:
    if len(text) > limits.IDENTIFIER:
        causes.too_long(at, limits.IDENTIFIER, declared)
    if causes.old:
        why = [f"Invalid value: {quoted(text)}: {one}" for one in texts.identifier(text)]
        causes.found += [Cause("FieldValueTypeInvalid", one, at) for one in why]
    else:
        causes.texts(at, text, texts.identifier(text), declared)
