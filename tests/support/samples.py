"""Sizes of tests that try many examples: a fifth of them in `make unit`, all of them in `make slow`.

Such a test has the mark `sampled`, by which `make slow` runs it once more.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ALL = os.environ.get("EXAMPLES") == "all"


def share(count: int) -> int:
    """Returns how many of `count` examples this run tries."""
    return count if ALL else count // 5


def every_fifth(examples: Sequence[T], first: int = 0) -> Sequence[T]:
    """Returns the examples that this run tries. Tests with different `first` try different ones."""
    return examples if ALL else examples[first % 5 :: 5]


def parameters(examples: Iterable[Sequence[object]]) -> list[Any]:
    """Returns parameters for pytest. Four of five have the mark `slow`."""
    marked = []
    for number, example in enumerate(examples):
        marks = [pytest.mark.slow] if number % 5 else []
        marked.append(pytest.param(*example, marks=marks))
    return marked
