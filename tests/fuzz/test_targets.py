"""A second of each target, the same every time; `make fuzz` goes on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import inputs, targets


@pytest.mark.parametrize("name", targets.TARGETS)
def test_examples_and_what_was_found_before(name: str) -> None:
    for example in targets.examples(name):
        targets.TARGETS[name].read(example)


@pytest.mark.parametrize("name", targets.TARGETS)
@given(st.data())
@settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_bytes_of_a_stranger(name: str, data: st.DataObject) -> None:
    target = targets.TARGETS[name]
    target.read(data.draw(inputs.of(targets.examples(name), target.words)))
