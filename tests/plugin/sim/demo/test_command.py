"""What is asked of `claimd demo`. The demo itself is in test_demo."""

import pytest

from plugin.sim.demo.command import DemoOptions


@pytest.mark.parametrize(
    ("speed", "at_a_terminal", "elsewhere"), [(None, 1.0, 0.0), (0.0, 0.0, 0.0), (2.0, 2.0, 2.0)]
)
def test_how_fast_texts_follow_each_other(speed, at_a_terminal, elsewhere):
    options = DemoOptions(speed=speed)
    assert options.speed_at(is_live=True) == at_a_terminal
    assert options.speed_at(is_live=False) == elsewhere
