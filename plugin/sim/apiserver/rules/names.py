"""The names that several kinds of the resource API have: drivers, pools, attributes. They look
alike in all of them.
"""

from __future__ import annotations

from ....api import limits
from ..types.status_errors import Cause
from . import texts
from .field_errors import FieldErrors, quoted


def check_driver(errors: FieldErrors, name: str, path: str, declared: bool = False) -> None:
    if not name:
        errors.required(path, declared=declared)
        if errors.modern:
            return
    if len(name) > limits.DRIVER_NAME and errors.old:
        errors.causes.append(
            Cause(
                "FieldValueTooLong", f"Too long: must have at most {limits.DRIVER_NAME} bytes", path
            )
        )
    elif len(name) > limits.DRIVER_NAME:
        errors.too_long(path, limits.DRIVER_NAME, declared)
    errors.each_invalid(path, name, texts.subdomain(name.lower()), declared)


def check_pool(errors: FieldErrors, name: str, path: str, declared: bool = False) -> None:
    if not name:
        errors.required(path, declared=declared)
        return
    if len(name) > limits.POOL_NAME:
        errors.too_long(path, limits.POOL_NAME, declared)
    for part in pool_parts(name):
        errors.each_invalid(path, part, texts.subdomain(part), declared)


def pool_parts(name: str) -> list[str]:
    return name.split("/")


def check_qualified(errors: FieldErrors, name: str, path: str, declared: bool = False) -> None:
    """An attribute or a capacity: an identifier, perhaps with a domain."""
    parts = name.split("/")
    if len(parts) == 1:
        _identifier(errors, name, path, declared)
    elif len(parts) == 2:
        if not parts[0]:
            _empty(
                errors,
                path,
                "the prefix must not be empty" if errors.old else "the domain must not be empty",
                declared,
            )
        else:
            check_driver(errors, parts[0], path, declared)
        if not parts[1]:
            _empty(errors, path, "the name must not be empty", declared)
        else:
            _identifier(errors, parts[1], path, declared)


def _empty(errors: FieldErrors, path: str, why: str, declared: bool) -> None:
    if errors.modern:
        errors.invalid(path, "", why, declared)
    else:
        errors.required(path, why, declared)


def check_fully_qualified(errors: FieldErrors, name: str, path: str) -> None:
    """As it is declared: other words for the same."""
    domain, slash, identifier = name.partition("/")
    if slash:
        if not domain:
            errors.invalid(path, "", "prefix must not be empty")
        else:
            errors.each_invalid(path, domain, texts.subdomain(domain))
        if not identifier:
            errors.invalid(path, "", "name must not be empty")
        else:
            _identifier(errors, identifier, path, False)
        return
    _identifier(errors, name, path, False)
    errors.invalid(path, name, texts.FULLY_QUALIFIED)


def _identifier(errors: FieldErrors, text: str, path: str, declared: bool) -> None:
    if len(text) > limits.IDENTIFIER:
        errors.too_long(path, limits.IDENTIFIER, declared)
    if errors.old:
        why = [f"Invalid value: {quoted(text)}: {one}" for one in texts.identifier(text)]
        errors.causes += [Cause("FieldValueTypeInvalid", one, path) for one in why]
    else:
        errors.each_invalid(path, text, texts.identifier(text), declared)
