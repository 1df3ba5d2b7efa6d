"""What came of every container, as a table: layout by image, and in a cell what was not right."""

from __future__ import annotations

from collections import defaultdict

from .build import BUILT
from .machine import Run

_cells: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))


def note(layout: str, run: Run, wrong: list[str]) -> None:
    how = f"{run.runtime} user {run.user}"
    how += " read-only" if run.read_only else ""
    how += " userns" if run.user_namespace else ""
    _cells[layout][run.image].append(f"{how}: {'; '.join(wrong)}" if wrong else "")


def write() -> None:
    """To build/containers/table.md, if there is anything to say."""
    if not _cells:
        return
    columns = sorted({image for row in _cells.values() for image in row})
    lines = [f"| layout | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for layout, row in _cells.items():
        cells = []
        for image in columns:
            wrong = [text for text in row[image] if text]
            cells.append("<br>".join(wrong) if wrong else f"yes, {len(row[image])} times")
        lines.append(f"| {layout} | {' | '.join(cells)} |")
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / "table.md").write_text("\n".join(lines) + "\n")
