"""What was found, as people read it and as tools do. Nothing is decided here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .check import Finding, Level, rank

VERSION = "claimd.dev/doctor/v1"

_TITLES = ("SEVERITY", "CHECK", "WHAT WAS SEEN")
_Row = tuple[str, str, str]


def as_text(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """A table, the worst first: what was seen, what was expected, what to do; a line that counts.

    Without `everything`, what is well is only counted, and what was not looked at stands there once
    for all checks that have the same reason.
    """
    ordered = sorted(findings, key=lambda finding: (rank(finding), finding.node))
    rows: list[_Row] = []
    unseen = []
    for finding in ordered:
        if finding.level is Level.UNSEEN and not everything:
            unseen.append(finding)
        elif finding.level is not Level.WELL or everything:
            rows += _rows(finding)
    rows += _unseen(unseen)

    lines = _table(rows) if rows else []
    lines.append(_count(ordered))
    return "\n".join(lines) + "\n"


def as_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """In the order of the text, with what is well; `version` changes when a field goes."""
    ordered = sorted(findings, key=lambda finding: (rank(finding), finding.node))
    rows = []
    for finding in ordered:
        row = dataclasses.asdict(finding)
        rows.append({key: str(value) for key, value in row.items() if value})
    counts = {
        level.value: sum(finding.level is level for finding in ordered) for level in list(Level)
    }
    return {"version": VERSION, "counts": counts, "findings": rows}


def _rows(finding: Finding) -> list[_Row]:
    where = f"node {finding.node}: " if finding.node else ""
    rows = [(finding.level.value, finding.check, f"{where}{finding.seen}")]
    if finding.expected:
        rows.append(("", "expected:", finding.expected))
    word = "to look:" if finding.level is Level.UNSEEN else "to do:"
    for line in finding.remedy.splitlines():
        rows.append(("", word, line))
        word = ""
    return rows


def _unseen(findings: Sequence[Finding]) -> list[_Row]:
    """Each reason once, with the checks that have it."""
    checks: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        name = f"{finding.check} of {finding.node}" if finding.node else finding.check
        checks.setdefault((finding.seen, finding.remedy), []).append(name)

    rows: list[_Row] = []
    for (reason, how), names in checks.items():
        first, *rest = names
        beside = f" (so are {', '.join(rest)})" if rest else ""
        rows.append((Level.UNSEEN.value, first, f"{reason}{beside}"))
        if how:
            rows.append(("", "to look:", how))
    return rows


def _table(rows: Sequence[_Row]) -> list[str]:
    table = [_TITLES, *rows]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    return [
        f"{level:{widths[0]}}  {name:{widths[1]}}  {text}".rstrip() for level, name, text in table
    ]


def _count(findings: Sequence[Finding]) -> str:
    parts = []
    for level, one, several in (
        (Level.ERROR, "error", "errors"),
        (Level.WARNING, "warning", "warnings"),
        (Level.NOTE, "note", "notes"),
        (Level.UNSEEN, "not looked at", "not looked at"),
        (Level.WELL, "well", "well"),
    ):
        count = sum(finding.level is level for finding in findings)
        if count:
            parts.append(f"{count} {one if count == 1 else several}")
    told = ", ".join(parts) or "nothing was looked at"
    bad = {Level.ERROR, Level.WARNING}
    if parts and not any(finding.level in bad for finding in findings):
        told += "; nothing found to mend"
    return told
