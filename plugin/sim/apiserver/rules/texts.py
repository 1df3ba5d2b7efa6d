"""What names and other short texts have to look like, and how the API server says that one does
not. Pure.
"""

from __future__ import annotations

import ipaddress
import re

LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = rf"{LABEL_PATTERN}(\.{LABEL_PATTERN})*"
QUALIFIED_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
VALUE_PATTERN = f"({QUALIFIED_PATTERN})?"
IDENTIFIER_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_PATTERN}')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_PATTERN}')"
)
CASELESS = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'Example.com', regex used for validation is '{SUBDOMAIN_PATTERN}')"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED_PATTERN}')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{VALUE_PATTERN}')"
)
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{IDENTIFIER_PATTERN}')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
FULLY_QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
CIDR = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
DOTS = "must not contain dots"

_LABEL, _SUBDOMAIN = re.compile(LABEL_PATTERN), re.compile(SUBDOMAIN_PATTERN)
_QUALIFIED, _IDENTIFIER = re.compile(QUALIFIED_PATTERN), re.compile(IDENTIFIER_PATTERN)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


def longer(most: int) -> str:
    return f"must be no more than {most} characters"


def label(text: str, dots: bool = True) -> list[str]:
    """A DNS label. `dots`: a name with dots, fine otherwise, is told only that it has dots."""
    found = [longer(63)] if len(text) > 63 else []
    if not _LABEL.fullmatch(text):
        found.append(DOTS if dots and _SUBDOMAIN.fullmatch(text) else LABEL)
    return found


def subdomain(text: str) -> list[str]:
    found = [longer(253)] if len(text) > 253 else []
    return found if _SUBDOMAIN.fullmatch(text) else [*found, SUBDOMAIN]


def caseless(text: str) -> list[str]:
    found = [longer(253)] if len(text) > 253 else []
    return found if _SUBDOMAIN.fullmatch(text.lower()) else [*found, CASELESS]


def qualified(text: str) -> list[str]:
    """The key of a label: a name, perhaps with a domain before a slash."""
    parts = text.split("/")
    if len(parts) > 2:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {QUALIFIED} {example}"]
    found = []
    if len(parts) == 2:
        prefix = parts[0]
        found += (
            ["prefix part must be non-empty"]
            if not prefix
            else [f"prefix part {t}" for t in subdomain(prefix)]
        )
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append(f"name part {longer(63)}")
    return found if _QUALIFIED.fullmatch(name) else [*found, f"name part {QUALIFIED}"]


def label_value(text: str) -> list[str]:
    found = [longer(63)] if len(text) > 63 else []
    return found if not text or _QUALIFIED.fullmatch(text) else [*found, VALUE]


def identifier(text: str) -> list[str]:
    return [] if _IDENTIFIER.fullmatch(text) else [IDENTIFIER]


def config_key(text: str) -> list[str]:
    if text in (".", "..") or text.startswith(".."):
        return ["must not be '.'" if text == "." else "must not start with '..'"]
    return [] if re.fullmatch(r"[-._a-zA-Z0-9]+", text) else [CONFIG_KEY]


def is_uuid(text: str) -> bool:
    return bool(_UUID.fullmatch(text))


def is_version(text: str) -> bool:
    return bool(_SEMVER.fullmatch(text))


def is_interface_address(text: str) -> bool:
    address, slash, _ = text.partition("/")
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return bool(slash) and not re.search(r"(^|\.)0\d", address)
