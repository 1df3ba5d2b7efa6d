"""A short piece of a long life, and what would be said of a bad one."""

import tempfile
from pathlib import Path

from tests.faults import long


async def test_a_plugin_does_not_grow_with_the_claims_that_it_has_seen():
    with tempfile.TemporaryDirectory(prefix="long-") as folder:  # a socket's path has to be short
        wrong = await long.live(400, Path(folder))
    assert not [sentence for sentence in wrong if "slow" not in sentence], (
        "and of times a busy machine says nothing"
    )


def test_each_way_to_grow_is_named():
    small, large = long.State(files=20, threads=3, resident_kb=44000), long.State(30, 3, 50000)
    slower, files, memory = long.judge([0.001] * 100 + [0.002] * 100, small, large)
    assert "2.00 times as slow" in slower
    assert "10 more open files" in files
    assert "6000 kB more memory" in memory
    assert long.judge([0.001] * 200, small, small) == []
