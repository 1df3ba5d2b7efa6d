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

NAMESPACE = "claimd-system"  # as the manifests have it

# So that claimd takes new settings. NODE is the node's name, where that is known.
RESTART = (
    f"kubectl -n {NAMESPACE} delete pod -l app.kubernetes.io/name=claimd "
    "--field-selector spec.nodeName=NODE"
)

KEEP_RUNNING = "pods that have a GPU keep running"


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


def follows(cause: str) -> str:
    """What is to be done about that which another finding has caused."""
    return f"it follows from {cause}: nothing to do here"


def rank(finding: Finding) -> int:
    """The worst has the smallest."""
    return _ORDER.index(finding.level)


def worst(findings: list[Finding]) -> Level:
    """WELL if there are none."""
    return min((finding.level for finding in findings), key=_ORDER.index, default=Level.WELL)


def named(finding: Finding, node: str, namespace: str = NAMESPACE) -> Finding:
    """With the names of the node, if it is known, and of claimd's namespace in what is to be typed."""
    remedy = re.sub(r"\bNODE\b", node, finding.remedy) if node else finding.remedy
    remedy = remedy.replace(f"-n {NAMESPACE} ", f"-n {namespace} ")
    return dataclasses.replace(finding, remedy=remedy)
