"""Kubernetes' named formats, such as format.dns1123Label(), which say what is wrong with a text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from ..declarations import Implementation
from ..errors import EvalError
from ..values import NAMES, NONE, STRICT, Optional
from .network import parse_url

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_UUID = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Format:
    """A named format.

    `regex_size` is the length of a pattern by which Kubernetes computes the cost of a check.
    `problems` returns messages about a text, or an empty list for a valid text.
    """

    name: str
    regex_size: int
    problems: Callable[[str], list[str]]


NAMES[Format] = "kubernetes.NamedFormat"
STRICT.add(Format)


def _name_check(
    form: re.Pattern[str], limit: int, expected: str, prefix: bool = False
) -> Callable[[str], list[str]]:
    """Returns a check for names of this form. A prefix may end with a dash."""

    def problems(text: str) -> list[str]:
        problems = []
        if len(text.encode()) > limit:
            problems.append(f"must be no more than {limit} characters")

        whole = text
        if prefix and len(text) > 1 and text.endswith("-"):
            whole = text[:-2] + "a"
        if not form.fullmatch(whole):
            problems.append(f"must be {expected}")
        return problems

    return problems


def _qualified_name_problems(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        return ["must be a name with an optional domain before a slash"]

    problems = _name_check(_NAME, 63, "a name of letters, digits, '-', '_' and '.'")(parts[-1])
    if not parts[-1]:
        problems.insert(0, "must not be empty")
    if len(parts) == 2:
        domain = _name_check(_SUBDOMAIN, 253, "a domain of lower-case letters, digits and '-'")
        problems += domain(parts[0])
    return problems


def _parse_check(read: Callable[[str], object], expected: str) -> Callable[[str], list[str]]:
    """Returns a check for texts that a function can read."""

    def problems(text: str) -> list[str]:
        try:
            read(text)
        except (EvalError, ValueError, binascii.Error):
            return [f"must be {expected}"]
        return []

    return problems


def _date(text: str) -> None:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(text)
    # Python has no year 0. It is a leap year, as 400 is.
    date(int(text[:4]) or 400, int(text[5:7]), int(text[8:]))


def _datetime(text: str) -> None:
    day, separator, time = text.lower().partition("t")
    match = re.fullmatch(
        r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", time
    )
    _date(day)
    if not separator or not match:
        raise ValueError(text)

    hour, minute, second = (int(match[part]) for part in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(text)


def _base64(text: str) -> None:
    if not text or len(text) % 4:
        raise ValueError(text)
    base64.b64decode(text, validate=True)


_LABEL_WORDS = "a label of lower-case letters, digits and '-'"
_SUBDOMAIN_WORDS = "labels of lower-case letters, digits and '-' with dots between"
FORMATS = {
    "dns1123Label": Format("DNS1123Label", 30, _name_check(_LABEL, 63, _LABEL_WORDS)),
    "dns1123Subdomain": Format(
        "DNS1123Subdomain", 60, _name_check(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS)
    ),
    "dns1035Label": Format("DNS1035Label", 30, _name_check(_LABEL_1035, 63, _LABEL_WORDS)),
    "dns1123LabelPrefix": Format(
        "DNS1123LabelPrefix", 30, _name_check(_LABEL, 63, _LABEL_WORDS, True)
    ),
    "dns1123SubdomainPrefix": Format(
        "DNS1123SubdomainPrefix", 60, _name_check(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS, True)
    ),
    "dns1035LabelPrefix": Format(
        "DNS1035LabelPrefix", 30, _name_check(_LABEL_1035, 63, _LABEL_WORDS, True)
    ),
    "qualifiedName": Format("QualifiedName", 60, _qualified_name_problems),
    "labelValue": Format(
        "LabelValue",
        40,
        _name_check(_VALUE, 63, "empty or a name of letters, digits, '-', '_' and '.'"),
    ),
    "uri": Format("URI", 1103, _parse_check(parse_url, "an absolute URI")),
    "uuid": Format("uuid", 70, lambda text: [] if _UUID.fullmatch(text) else ["must be a UUID"]),
    "byte": Format("byte", 84, _parse_check(_base64, "base64")),
    "date": Format("date", 71, _parse_check(_date, "a date such as 2006-01-02")),
    "datetime": Format(
        "datetime", 71, _parse_check(_datetime, "a time such as 2006-01-02T15:04:05Z")
    ),
}


def _validate(form: Format, text: str) -> Optional:
    problems = form.problems(text)
    return Optional(problems) if problems else NONE


def _constant(form: Format) -> Implementation:
    return lambda: form


TABLE: dict[str, Implementation] = {
    **{f"format.{name}: () -> format": _constant(form) for name, form in FORMATS.items()},
    "format.named: (string) -> optional<format>": lambda name: (
        Optional(FORMATS[name]) if name in FORMATS else NONE
    ),
    "validate: format.(string) -> optional<list<string>>": _validate,
}
