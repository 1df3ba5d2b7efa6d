"""Completion indexes of an indexed Job: sets of numbers as its status writes them, `0-3,5`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from claimd.kubernetes.api.document import Document

ANNOTATION = "batch.kubernetes.io/job-completion-index"  # and the label
VARIABLE = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """None for a pod that says none, or nonsense."""
    text = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    return int(text) if text.isdecimal() else None


def parse(text: str | None, completions: int) -> set[int]:
    """The indexes below `completions`; what cannot be read is passed over."""
    found: set[int] = set()
    for interval in (text or "").split(","):
        first, _, last = interval.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), completions - 1) + 1))
    return found


def text(indexes: Collection[int]) -> str:
    """Three and more in a row are written with a hyphen."""
    parts: list[str] = []
    for first, last in _intervals(indexes):
        if last - first < 2:
            parts += map(str, range(first, last + 1))
        else:
            parts.append(f"{first}-{last}")
    return ",".join(parts)


def _intervals(indexes: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def met_rule(policy: Document | None, completions: int, succeeded: set[int]) -> int | None:
    """The first rule of a successPolicy that is fulfilled, by its number."""
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
