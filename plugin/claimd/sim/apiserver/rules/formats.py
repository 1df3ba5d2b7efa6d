"""The formats of names and other short texts, with the API server's messages about them.

The module is pure. A function that returns a list returns the problems of the text. The list is
empty for a valid text.
"""

from __future__ import annotations

import ipaddress
import re

LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_1035_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = rf"{LABEL_PATTERN}(\.{LABEL_PATTERN})*"
QUALIFIED_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
VALUE_PATTERN = f"({QUALIFIED_PATTERN})?"
IDENTIFIER_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"
CONFIG_KEY_PATTERN = "[-._a-zA-Z0-9]+"

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{LABEL_PATTERN}')"
)
LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{LABEL_1035_PATTERN}')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{SUBDOMAIN_PATTERN}')"
)
CASELESS_SUBDOMAIN = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is "
    f"'{SUBDOMAIN_PATTERN}')"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{QUALIFIED_PATTERN}')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{VALUE_PATTERN}')"
)
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    f"validation is '{IDENTIFIER_PATTERN}')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
    f"'{CONFIG_KEY_PATTERN}')"
)
FULLY_QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
INTERFACE_ADDRESS = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
DOTS = "must not contain dots"

MAX_LABEL, MAX_SUBDOMAIN = 63, 253

_LABEL, _SUBDOMAIN = re.compile(LABEL_PATTERN), re.compile(SUBDOMAIN_PATTERN)
_LABEL_1035 = re.compile(LABEL_1035_PATTERN)
_QUALIFIED, _IDENTIFIER = re.compile(QUALIFIED_PATTERN), re.compile(IDENTIFIER_PATTERN)
_CONFIG_KEY = re.compile(CONFIG_KEY_PATTERN)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_LEADING_ZERO = re.compile(r"(^|\.)0\d")


def dns_label(text: str, names_dots: bool = True) -> list[str]:
    """Checks a DNS label.

    With `names_dots`, the only problem of a valid name with dots is that it contains dots.
    """
    problems = _longer_than(text, MAX_LABEL)
    if not _LABEL.fullmatch(text):
        has_dots = names_dots and _SUBDOMAIN.fullmatch(text)
        problems.append(DOTS if has_dots else LABEL)
    return problems


def dns1035_label(text: str) -> list[str]:
    """Checks a label that begins with a letter, as names of kinds and versions do."""
    problems = _longer_than(text, MAX_LABEL)
    return problems if _LABEL_1035.fullmatch(text) else [*problems, LABEL_1035]


def dns_subdomain(text: str) -> list[str]:
    problems = _longer_than(text, MAX_SUBDOMAIN)
    if not _SUBDOMAIN.fullmatch(text):
        problems.append(SUBDOMAIN)
    return problems


def caseless_subdomain(text: str) -> list[str]:
    problems = _longer_than(text, MAX_SUBDOMAIN)
    if not _SUBDOMAIN.fullmatch(text.lower()):
        problems.append(CASELESS_SUBDOMAIN)
    return problems


def qualified_name(text: str) -> list[str]:
    """Checks the key of a label: a name, which may have a domain and a slash in front."""
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {QUALIFIED} {example}"]

    problems = []
    for prefix in prefixes:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {why}" for why in dns_subdomain(prefix)]

    if not name:
        problems.append("name part must be non-empty")
    problems += [f"name part {why}" for why in _longer_than(name, MAX_LABEL)]
    if not _QUALIFIED.fullmatch(name):
        problems.append(f"name part {QUALIFIED}")
    return problems


def label_value(text: str) -> list[str]:
    problems = _longer_than(text, MAX_LABEL)
    if text and not _QUALIFIED.fullmatch(text):
        problems.append(LABEL_VALUE)
    return problems


def c_identifier(text: str) -> list[str]:
    return [] if _IDENTIFIER.fullmatch(text) else [IDENTIFIER]


def config_map_key(text: str) -> list[str]:
    if text == ".":
        return ["must not be '.'"]
    if text.startswith(".."):
        return ["must not start with '..'"]
    return [] if _CONFIG_KEY.fullmatch(text) else [CONFIG_KEY]


def _longer_than(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text) > limit else []


def is_uuid(text: str) -> bool:
    return bool(_UUID.fullmatch(text))


def is_semver(text: str) -> bool:
    return bool(_SEMVER.fullmatch(text))


def is_interface_address(text: str) -> bool:
    """Returns True for an IP address with a prefix length. Octets may have no leading zero."""
    address, slash, _ = text.partition("/")
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return bool(slash) and not _LEADING_ZERO.search(address)
