"""Regular expressions as Go has them, matched within a bound of steps.

Go's engine takes linear time for every pattern; Python's is fast, but some patterns keep it busy
for hours. So a pattern is read by Go's rules (`parser`), and then each text goes to one of two
engines: to Python's where few ways through the pattern exist for a text of that length
(`backtracking`), else to a machine that takes all ways at once (`machine`).
"""

from __future__ import annotations

from .errors import InvalidPatternError, TooLargeError
from .pattern import Pattern, compiled

__all__ = [
    "InvalidPatternError",
    "Pattern",
    "TooLargeError",
    "compiled",
]
