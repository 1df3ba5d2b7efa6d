"""Some inputs for each target, the same every time; `make fuzz` goes on."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import targets
from tests.support import samples

COUNT = 100


@pytest.mark.slow
@pytest.mark.parametrize("name", targets.TARGETS)
def test_examples_and_what_was_found_before(name: str) -> None:
    for example in targets.examples(name):
        targets.TARGETS[name].read(example)


@pytest.mark.sampled
@pytest.mark.parametrize("name", targets.TARGETS)
def test_bytes_of_a_stranger(name: str) -> None:
    inputs_ = targets.make_inputs(name, random.Random(name), targets.examples(name))
    for _ in range(samples.share(COUNT)):
        targets.TARGETS[name].read(inputs_.next())
