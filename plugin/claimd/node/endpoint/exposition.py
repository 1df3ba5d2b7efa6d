"""Formats metrics for Prometheus: in its own format 0.0.4, or in OpenMetrics 1.0 on request.

This module is pure. It is loaded at the first scrape, so that other nodes do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The requested versions of OpenMetrics that get 1.0; "" means any version.
_VERSIONS = ("", "0.0.1", "1.0.0")

# A weight by the grammar of HTTP.
_WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


class Family(Protocol):
    """A metric, as `claimd.common.metrics` defines it."""

    name: str
    about: str
    kind: str
    labels: tuple[str, ...]

    def samples(self) -> list[tuple[str, tuple[str, ...], float]]: ...


def content_type(accept: str) -> str:
    """Returns the format for a client with this `Accept`.

    It is OpenMetrics if the client names it and does not prefer the other format.
    """
    # The weights of OpenMetrics, of plain text, and of wildcards.
    openly, plainly, anything = 0.0, -1.0, 0.0
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        weight = _weight(options.get("q", "1"))
        if kind == "application/openmetrics-text" and options.get("version", "") in _VERSIONS:
            openly = max(openly, weight)
        elif kind == "text/plain":
            plainly = max(plainly, weight)
        elif kind in ("text/*", "*/*"):
            anything = max(anything, weight)

    # A wildcard counts for formats that are not named.
    if plainly < 0:
        plainly = anything
    return OPEN_METRICS if 0 < openly >= plainly else PLAIN


def text(families: Iterable[Family], form: str) -> str:
    """Formats the families in their order, without the end of the last line."""
    is_open = form == OPEN_METRICS
    lines = []
    for family in families:
        # In OpenMetrics the suffix _total belongs to the samples of a counter, not to its name.
        title = family.name
        if is_open and family.kind == "counter":
            title = title.removesuffix("_total")
        lines.append(f"# HELP {title} {family.about}")
        lines.append(f"# TYPE {title} {family.kind}")

        for suffix, values, value in family.samples():
            names, texts = family.labels, values
            if suffix == "_bucket":
                names = (*names, "le")
                if is_open:
                    texts = (*values[:-1], _with_point(values[-1]))
            number = repr(float(value)).removesuffix(".0")
            lines.append(f"{family.name}{suffix}{_labels(names, texts)} {number}")
    if is_open:
        lines.append("# EOF")
    return "\n".join(lines)


def _weight(text: str) -> float:
    """Returns the weight. It is 0 if malformed: such a client gets the plain format."""
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _with_point(bound: str) -> str:
    """Formats a bucket's bound as OpenMetrics requires it: 2.0, not 2."""
    return bound if "." in bound or bound == "+Inf" else f"{bound}.0"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = []
    for name, value in zip(names, values, strict=True):
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"
