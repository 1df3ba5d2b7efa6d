"""What a check is, and what it finds: plain data. Nothing is looked at here."""

from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad a finding is; the worst first."""

    ERROR = "error"  # pods do not get their GPUs, or two pods could get one
    WARNING = "warning"  # it works, but not all of it, or not for long
    NOTE = "note"  # as it may be, and people should know
    UNSEEN = "not looked at"  # it cannot be seen from here, or by whom we are
    WELL = "well"


_ORDER = list(Level)

# So that claimd takes new settings. NODE and SETTINGS stand for what `named` knows.
RESTART = (
    "kubectl -n claimd-system delete pod -l app.kubernetes.io/name=claimd "
    "--field-selector spec.nodeName=NODE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says, about one thing."""

    check: str
    level: Level
    seen: str
    expected: str = ""
    # What to do, or how to look: sentences and commands, one a line.
    remedy: str = ""
    node: str = ""  # where several are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to be so. Its texts hold in general; a finding may know better."""

    name: str
    level: Level  # of a finding that it is not so
    looks_at: str
    expected: str
    remedy: str

    def well(self, seen: str) -> Finding:
        return Finding(check=self.name, level=Level.WELL, seen=seen)

    def failed(
        self, seen: str, *, expected: str = "", remedy: str = "", level: Level | None = None
    ) -> Finding:
        return Finding(
            check=self.name,
            level=level or self.level,
            seen=seen,
            expected=expected or self.expected,
            remedy=remedy or self.remedy,
        )

    def unseen(self, reason: str, how: str) -> Finding:
        """It could not be looked at: why, and how somebody could."""
        return Finding(check=self.name, level=Level.UNSEEN, seen=reason, remedy=how)


def rank(finding: Finding) -> int:
    """The worst has the smallest."""
    return _ORDER.index(finding.level)


def worst(findings: list[Finding]) -> Level:
    """WELL if there are none."""
    return min((finding.level for finding in findings), key=_ORDER.index, default=Level.WELL)


def named(finding: Finding, node: str, settings_file: str = "") -> Finding:
    """With the node's name in what is to be typed, and where settings are written, if it is known."""
    place = settings_file or "the settings of claimd's DaemonSet, which are for all its nodes,"
    remedy = finding.remedy.replace("SETTINGS", place)
    remedy = re.sub(r"\bNODE\b", node, remedy) if node else remedy
    return dataclasses.replace(finding, remedy=remedy)
