"""What came of every container, as a table: a row for a layout and a runtime, a column for an image
and a user. A cell stands for all ways to run the container: with a root file system that can be
written or not, in the machine's user namespace or in one of its own.
"""

from __future__ import annotations

from collections import defaultdict

from tests.support import driver_layouts

from . import images
from .build import BUILT, ROOT
from .machine import Run

PAGE = ROOT / "docs/nvidia-libraries.md"
BEGIN, END = "<!-- written by `make containers` -->\n", "<!-- end of what it writes -->\n"
RUNTIMES = ("runc", "crun")
USERS = {0: "root", 1000: "user 1000"}

_Cell = list[str]  # for each container what was wrong, empty if nothing was
_cells: dict[tuple[str, str], dict[tuple[str, int], _Cell]] = defaultdict(lambda: defaultdict(list))


def note(layout: str, run: Run, wrong: list[str]) -> None:
    """Notes what was wrong with a container."""
    how = "read-only" if run.read_only else "writable"
    how += ", user namespace" if run.user_namespace else ""
    text = f"{how}: {'; '.join(wrong)}" if wrong else ""
    _cells[layout, run.runtime][run.image, run.user].append(text)


def write() -> None:
    """Writes build/containers/table.md, and the page as well if nothing was left out."""
    if not _cells:
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    text = _table()
    (BUILT / "table.md").write_text(text)

    wanted = {(layout, runtime) for layout in driver_layouts.LAYOUTS for runtime in RUNTIMES}
    if wanted <= _cells.keys():
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def _table() -> str:
    used = {column for row in _cells.values() for column in row}
    kinds = (*images.KINDS, "triton")
    columns = [(image, user) for image in kinds for user in USERS if (image, user) in used]
    heads = [f"{image}, {USERS[user]}" for image, user in columns]
    lines = [f"| layout | runtime | {' | '.join(heads)} |", "| --- " * (len(columns) + 2) + "|"]
    for (layout, runtime), row in sorted(_cells.items()):
        cells = [_in_words(row[column]) for column in columns]
        lines.append(f"| {layout} | {runtime} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _in_words(cell: _Cell) -> str:
    wrong = [text for text in cell if text]
    if wrong:
        return "<br>".join(wrong)
    return f"yes ({len(cell)})" if cell else ""
