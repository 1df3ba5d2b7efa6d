"""`python -m tests.docs`: writes the generated tables of docs/, its charts, the output of its
commands, and the settings in the schema of the chart's values anew.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from . import chart, measured, pages, tables


def main() -> int:
    logging.disable(logging.WARNING)  # of the GPUs that are made sick
    for page in pages.pages():
        before = page.read_text()
        try:
            after = pages.regenerated(before)
        except tables.Incomplete as error:
            print(f"{page.relative_to(pages.ROOT)}: {error}", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory() as folder:
            pages.furnish(Path(folder))
            after = pages.replayed(after, Path(folder))
        if page == pages.PYTHON_PAGE:
            after = pages.with_output_of_python(after)
        if after != before:
            page.write_text(after)
            print(f"written: {page.relative_to(pages.ROOT)}")
    for picture in measured.draw():
        print(f"written: {picture.relative_to(pages.ROOT)}")
    before = chart.SCHEMA.read_text()
    after = chart.schema(before)
    if after != before:
        chart.SCHEMA.write_text(after)
        print(f"written: {chart.SCHEMA.relative_to(pages.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
