"""The text that Prometheus reads: its own format 0.0.4, or OpenMetrics 1.0 for who asks for it.

Pure, and loaded at the first scrape: a node that nobody scrapes has no cost of it. What is counted
stands in `metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Versions of OpenMetrics that 1.0 is an answer to; "" is any.
_VERSIONS = ("", "0.0.1", "1.0.0")
# A weight as HTTP has it.
_WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


class Family(Protocol):
    """A metric of `metrics`, which is below all layers as this module is."""

    name: str
    about: str
    kind: str
    labels: tuple[str, ...]

    def samples(self) -> list[tuple[str, tuple[str, ...], float]]: ...


def content_type(accept: str) -> str:
    """The format for a client with this `Accept`.

    OpenMetrics for who names it, and does not like the other better.
    """
    openly, plainly, anything = 0.0, -1.0, 0.0
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        weight = _weight(given.get("q", "1"))
        if kind == "application/openmetrics-text" and given.get("version", "") in _VERSIONS:
            openly = max(openly, weight)
        elif kind == "text/plain":
            plainly = max(plainly, weight)
        elif kind in ("text/*", "*/*"):
            anything = max(anything, weight)

    # A wildcard is for what is not named.
    if plainly < 0:
        plainly = anything
    return OPEN_METRICS if 0 < openly >= plainly else PLAIN


def text(families: Iterable[Family], form: str) -> str:
    """The families in their order, in one of the two formats, without the last line's end."""
    is_open = form == OPEN_METRICS
    lines = []
    for family in families:
        # In OpenMetrics the end of a counter's name belongs to its samples.
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
    """0 for what is no weight: such a client is told what everybody understands."""
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _with_point(bound: str) -> str:
    """A bucket's bound as OpenMetrics has numbers in labels: 2.0, not 2."""
    return bound if "." in bound or bound == "+Inf" else f"{bound}.0"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = []
    for name, value in zip(names, values, strict=True):
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"
