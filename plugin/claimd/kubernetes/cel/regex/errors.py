"""What can go wrong with a pattern. Only exceptions."""

from __future__ import annotations


class InvalidPatternError(Exception):
    """Go refuses the pattern, too."""


class TooLargeError(Exception):
    """The pattern repeats too much to be matched here. Go, which is faster, may have an answer."""
