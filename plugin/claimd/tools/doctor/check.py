"""Checks and their findings, as plain data."""

from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass


class Level(enum.StrEnum):
    """The severity of a finding. The worst level comes first."""

    ERROR = "error"  # pods do not get their GPUs, or two pods could get the same one
    WARNING = "warning"  # something does not work, or will stop soon
    NOTE = "note"  # allowed, but people should know
    UNSEEN = "not looked at"  # cannot be seen from this place, or with our rights
    WELL = "well"


_ORDER = list(Level)

# The namespace in the manifests.
NAMESPACE = "claimd-system"

# A command that makes claimd read its settings again. `with_names` replaces NODE.
RESTART = (
    f"kubectl -n {NAMESPACE} delete pod -l app.kubernetes.io/name=claimd "
    "--field-selector spec.nodeName=NODE"
)

KEEP_RUNNING = "pods that have a GPU keep running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check about one thing. A check may have several."""

    check: str
    level: Level
    seen: str
    expected: str = ""
    # What to do, or how to look: a sentence or a command on each line.
    remedy: str = ""
    # The node's name, if several nodes are examined.
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A condition that has to hold.

    `expected` and `remedy` hold in general. A finding can have texts of its own.
    """

    name: str
    level: Level  # of a finding that the condition does not hold
    looks_at: str
    expected: str
    remedy: str

    def success(self, seen: str) -> Finding:
        return Finding(check=self.name, level=Level.WELL, seen=seen)

    def failure(
        self, seen: str, *, expected: str = "", remedy: str = "", level: Level | None = None
    ) -> Finding:
        return Finding(
            check=self.name,
            level=level or self.level,
            seen=seen,
            expected=expected or self.expected,
            remedy=remedy or self.remedy,
        )

    def unknown(self, reason: str, how: str) -> Finding:
        """Returns a finding that says why the check was not possible, and how a person could make
        it.
        """
        return Finding(check=self.name, level=Level.UNSEEN, seen=reason, remedy=how)


def caused_by(cause: str) -> str:
    """Returns the remedy of a finding that another one, `cause`, has caused."""
    return f"it follows from {cause}: nothing to do here"


def rank(finding: Finding) -> int:
    """Returns a number to sort findings by. The worst has the smallest."""
    return _ORDER.index(finding.level)


def worst_level(findings: list[Finding]) -> Level:
    """Returns the worst level of the findings, and WELL if there are no findings."""
    return min((finding.level for finding in findings), key=_ORDER.index, default=Level.WELL)


def with_names(finding: Finding, node: str, namespace: str = NAMESPACE) -> Finding:
    """Returns the finding with the names of the node and of claimd's namespace in its commands.

    NODE stays if the node's name is empty.
    """
    remedy = finding.remedy
    if node:
        # A function, because a backslash in a replacement text has a meaning.
        remedy = re.sub(r"\bNODE\b", lambda _: node, remedy)
    remedy = remedy.replace(f"-n {NAMESPACE} ", f"-n {namespace} ")
    return dataclasses.replace(finding, remedy=remedy)
