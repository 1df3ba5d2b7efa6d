"""Findings as text for people and as data for tools."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from claimd.common import plain_text

from .check import Finding, Level, rank

VERSION = "claimd.dev/doctor/v1"

_TITLES = ("SEVERITY", "CHECK", "WHAT WAS SEEN")
_Row = tuple[str, str, str]


def as_text(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Returns a table of the findings, the worst first, and a line that counts them.

    Each finding says what was seen, what was expected, and what to do. Without `everything`, the
    good findings are only counted, and checks that could not be made for the same reason share a
    row.
    """
    ordered = sorted(findings, key=lambda finding: (rank(finding), finding.node))
    rows: list[_Row] = []
    unseen = []
    for finding in ordered:
        if finding.level is Level.UNSEEN and not everything:
            unseen.append(finding)
        elif finding.level is not Level.WELL or everything:
            rows += _finding_rows(finding)
    rows += _unseen_rows(unseen)

    # The line that counts stands alone if the table would be empty.
    lines = _format_table(rows) if rows else []
    lines.append(_count_levels(ordered))
    return "\n".join(lines) + "\n"


def as_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns all findings as JSON can hold them, in the order of the text.

    `version` changes whenever a field is removed.
    """
    ordered = sorted(findings, key=lambda finding: (rank(finding), finding.node))
    rows = []
    for finding in ordered:
        row = {}
        for key, value in dataclasses.asdict(finding).items():
            if value:
                row[key] = str(value)
        rows.append(row)

    counts = {level.value: 0 for level in Level}
    for finding in ordered:
        counts[finding.level.value] += 1
    return {"version": VERSION, "counts": counts, "findings": rows}


def _finding_rows(finding: Finding) -> list[_Row]:
    where = f"node {finding.node}: " if finding.node else ""
    rows = [(finding.level.value, finding.check, f"{where}{finding.seen}")]
    if finding.expected:
        rows.append(("", "expected:", finding.expected))

    # Only the first line of the remedy has the word in front.
    word = "to look:" if finding.level is Level.UNSEEN else "to do:"
    for line in finding.remedy.split("\n") if finding.remedy else ():
        rows.append(("", word, line))
        word = ""
    return rows


def _unseen_rows(findings: Sequence[Finding]) -> list[_Row]:
    """Returns a row for each reason, with all checks that have it."""
    checks: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        name = f"{finding.check} of {finding.node}" if finding.node else finding.check
        checks.setdefault((finding.seen, finding.remedy), []).append(name)

    rows: list[_Row] = []
    for (reason, how), names in checks.items():
        first, *rest = names
        others = f" (so are {', '.join(rest)})" if rest else ""
        rows.append((Level.UNSEEN.value, first, f"{reason}{others}"))
        if how:
            rows.append(("", "to look:", how))
    return rows


def _format_table(rows: Sequence[_Row]) -> list[str]:
    # Findings quote files, programs and objects of strangers. Each cell stays on its line.
    table = []
    for row in (_TITLES, *rows):
        table.append(tuple(map(plain_text.plain_line, row)))
    levels, names, _ = zip(*table, strict=True)
    level_width, name_width = max(map(len, levels)), max(map(len, names))

    lines = []
    for level, name, text in table:
        lines.append(f"{level:{level_width}}  {name:{name_width}}  {text}".rstrip())
    return lines


def _count_levels(findings: Sequence[Finding]) -> str:
    counts = collections.Counter(finding.level for finding in findings)
    parts = []
    for level, singular, plural in (
        (Level.ERROR, "error", "errors"),
        (Level.WARNING, "warning", "warnings"),
        (Level.NOTE, "note", "notes"),
        (Level.UNSEEN, "not looked at", "not looked at"),
        (Level.WELL, "well", "well"),
    ):
        count = counts[level]
        if count:
            parts.append(f"{count} {singular if count == 1 else plural}")
    line = ", ".join(parts) or "nothing was looked at"

    # People who have just made a repair look for this line.
    if parts and not counts[Level.ERROR] and not counts[Level.WARNING]:
        line += "; nothing found to mend"
    return line
