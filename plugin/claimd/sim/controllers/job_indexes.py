"""The completion indexes of an indexed Job, as sets and in the form of its status: `0-3,5`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from claimd.kubernetes.api.document import Document

ANNOTATION = "batch.kubernetes.io/job-completion-index"  # also the name of the label
VARIABLE = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """Returns the pod's completion index, or None if it has no valid one."""
    text = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    return int(text) if text.isdecimal() else None


def parse(text: str | None, completions: int) -> set[int]:
    """Returns the listed indexes below `completions`, and skips unreadable intervals."""
    indexes: set[int] = set()
    for interval in (text or "").split(","):
        first, _, last = interval.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            indexes.update(range(int(first), min(int(last or first), completions - 1) + 1))
    return indexes


def text(indexes: Collection[int]) -> str:
    """Formats the indexes; three or more consecutive ones become an interval with a hyphen."""
    parts: list[str] = []
    for first, last in _intervals(indexes):
        if last - first < 2:
            parts += map(str, range(first, last + 1))
        else:
            parts.append(f"{first}-{last}")
    return ",".join(parts)


def _intervals(indexes: Iterable[int]) -> list[tuple[int, int]]:
    intervals: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if intervals and intervals[-1][1] == index - 1:
            intervals[-1] = (intervals[-1][0], index)
        else:
            intervals.append((index, index))
    return intervals


def met_rule(policy: Document | None, completions: int, succeeded: set[int]) -> int | None:
    """Returns the number of the first fulfilled rule of a successPolicy, or None."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        count = rule.get("succeededCount")
        if rule.get("succeededIndexes") is None:
            if count is not None and succeeded and len(succeeded) >= count:
                return number
            continue

        wanted = parse(rule["succeededIndexes"], completions)
        there = wanted & succeeded
        if there and (there == wanted or (count is not None and len(there) >= count)):
            return number
    return None
