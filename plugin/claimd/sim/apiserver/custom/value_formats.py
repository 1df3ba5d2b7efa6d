"""The text formats that a schema can require. An unknown format has no effect except a warning."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

_HEX = "[0-9a-f]"
_UUID = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_DURATION = re.compile(r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|\d+ *[a-zA-Z]+")


def is_valid(form: str, text: str) -> bool:
    """Returns True if the text has the format. Any text passes if the format is unknown."""
    check = FORMATS.get(form.replace("-", "") if form == "date-time" else form)
    try:
        return check is None or bool(check(text))
    except (ValueError, binascii.Error):
        return False


def is_known(form: str) -> bool:
    return form in FORMATS or form in ("date-time", "datetime") or form in NUMBERS


def _pattern(text: str) -> Callable[[str], object]:
    compiled = re.compile(text)
    return compiled.fullmatch


def _date_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if not match:
        return False
    date.fromisoformat(match[1])
    return int(match[2]) < 24 and int(match[3]) < 60 and int(match[4]) < 60


def _uri(text: str) -> bool:
    parts = urlsplit(text)
    return bool(text) and (bool(parts.scheme) or text.startswith("/"))


NUMBERS = ("int32", "int64", "float", "double")
FORMATS: dict[str, Callable[[str], object]] = {
    "bsonobjectid": _pattern("(?i)[0-9a-f]{24}"),
    "uri": _uri,
    "email": _pattern(r"[^@\s<>]+@[^@\s<>]+"),
    "hostname": _pattern(r"(?=.{1,253}\Z)([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.?)+"),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "cidr": lambda text: "/" in text and ipaddress.ip_interface(text),
    "mac": _pattern("(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5}([:-][0-9a-f]{2}){0,2}"),
    "uuid": _pattern(_UUID % (_HEX, _HEX)),
    "uuid3": _pattern(_UUID % ("3", _HEX)),
    "uuid4": _pattern(_UUID % ("4", "[89ab]")),
    "uuid5": _pattern(_UUID % ("5", "[89ab]")),
    "isbn": _pattern(r"[\d-]{9,16}[\dXx]"),
    "isbn10": _pattern(r"\d{9}[\dX]"),
    "isbn13": _pattern(r"[\d-]{13,17}"),
    "creditcard": _pattern(r"[\d -]{13,19}"),
    "ssn": _pattern(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _pattern("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _pattern(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "byte": lambda text: base64.b64decode(text, validate=True) is not None,
    "password": lambda text: True,
    "date": lambda text: len(text) == 10 and date.fromisoformat(text),
    "duration": _DURATION.fullmatch,
    "datetime": _date_time,
    "k8s-short-name": _pattern("(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?"),
    "k8s-long-name": _pattern(
        r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    ),
}
