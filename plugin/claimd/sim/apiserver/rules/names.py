"""Validation of names in several kinds of the resource API: drivers, pools and attributes."""

from __future__ import annotations

from functools import lru_cache

from claimd.kubernetes.api import limits

from ..types.status_errors import Cause
from . import formats
from .field_errors import FieldErrors, quote

# The size of the cache of valid names.
NAMES = 4096


def validate_driver(errors: FieldErrors, name: str, path: str, declared: bool = False) -> None:
    if not name:
        errors.required(path, declared=declared)
        if errors.has_declarative_validation:
            return
    if len(name) > limits.DRIVER_NAME:
        if errors.is_early:
            message = f"Too long: must have at most {limits.DRIVER_NAME} bytes"
            errors.causes.append(Cause("FieldValueTooLong", message, path))
        else:
            errors.too_long(path, limits.DRIVER_NAME, declared)
    errors.each_invalid(path, name, formats.dns_subdomain(name.lower()), declared)


def validate_pool(errors: FieldErrors, name: str, path: str, declared: bool = False) -> None:
    if not name:
        errors.required(path, declared=declared)
        return
    if len(name) > limits.POOL_NAME:
        errors.too_long(path, limits.POOL_NAME, declared)
    for segment in pool_segments(name):
        errors.each_invalid(path, segment, formats.dns_subdomain(segment), declared)


def pool_segments(name: str) -> list[str]:
    return name.split("/")


def validate_qualified_name(
    errors: FieldErrors, name: str, path: str, declared: bool = False
) -> None:
    """Validates the name of an attribute or a capacity: an identifier, which may have a domain."""
    if is_qualified_name(name):
        return
    domain, slash, identifier = name.partition("/")
    if not slash:
        _validate_identifier(errors, name, path, declared)
        return
    if "/" in identifier:
        return

    if not domain:
        empty = "the prefix" if errors.is_early else "the domain"
        _empty(errors, path, f"{empty} must not be empty", declared)
    else:
        validate_driver(errors, domain, path, declared)

    if not identifier:
        _empty(errors, path, "the name must not be empty", declared)
    else:
        _validate_identifier(errors, identifier, path, declared)


# Cached, because most names are checked many times.
@lru_cache(maxsize=NAMES)
def is_qualified_name(name: str) -> bool:
    """Returns True if the name is a C identifier, with or without a DNS domain before it."""
    domain, slash, identifier = name.rpartition("/")
    if slash and (len(domain) > limits.DRIVER_NAME or formats.dns_subdomain(domain.lower())):
        return False
    return len(identifier) <= limits.IDENTIFIER and not formats.c_identifier(identifier)


def _empty(errors: FieldErrors, path: str, why: str, declared: bool) -> None:
    if errors.has_declarative_validation:
        errors.invalid(path, "", why, declared)
    else:
        errors.required(path, why, declared)


def validate_fully_qualified_name(errors: FieldErrors, name: str, path: str) -> None:
    """Checks a name by the declared rule: other messages, and the domain is required."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        _validate_identifier(errors, name, path, False)
        errors.invalid(path, name, formats.FULLY_QUALIFIED)
        return

    if not domain:
        errors.invalid(path, "", "prefix must not be empty")
    else:
        errors.each_invalid(path, domain, formats.dns_subdomain(domain))

    if not identifier:
        errors.invalid(path, "", "name must not be empty")
    else:
        _validate_identifier(errors, identifier, path, False)


def _validate_identifier(errors: FieldErrors, text: str, path: str, declared: bool) -> None:
    if len(text) > limits.IDENTIFIER:
        errors.too_long(path, limits.IDENTIFIER, declared)
    problems = formats.c_identifier(text)
    if not errors.is_early:
        errors.each_invalid(path, text, problems, declared)
        return
    for why in problems:
        message = f"Invalid value: {quote(text)}: {why}"
        errors.causes.append(Cause("FieldValueTypeInvalid", message, path))
