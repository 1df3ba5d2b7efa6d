"""What docs/cost.md shows of the benchmark's results that are kept."""

from __future__ import annotations

from pathlib import Path

from tests.bench import published, results

from .common import table


def circumstances() -> str:
    return published.circumstances(results.read())


def figures() -> str:
    titles, lines = published.rows(results.read())
    return table(titles, lines)


def draw() -> list[Path]:
    """The charts anew; the files that are others now."""
    return published.write(results.read())
