"""Sizes of tests that try many examples: a fifth of them in `make unit`, all of them in `make slow`.

Such a test has the mark `sampled`, by which `make slow` runs it once more.
"""

import os

ALL = os.environ.get("EXAMPLES") == "all"


def share(count: int) -> int:
    """Returns how many of `count` examples this run tries."""
    return count if ALL else count // 5
