"""The sizes of values, and arithmetic with sizes that have no limit."""

import pytest

from claimd.kubernetes.cel import sizes
from claimd.kubernetes.cel.sizes import INF, Size


def test_nothing_times_infinity_is_nothing():
    assert sizes.times(0, INF) == sizes.times(INF, 0) == 0
    assert sizes.times(2, INF) == INF
    assert sizes.times(2, 3) == 6
    assert Size(0, 2).times(Size(INF, INF)) == (0, INF)


def test_either_and_both_together():
    assert Size(1, 4).or_(Size(2, 7)) == (1, 7)
    assert Size(1, 4).plus(Size(2, 7)) == (3, 11)
    assert sizes.ONE == (1, 1)
    # The size of an unknown value, and that of an empty union.
    assert Size(1, 4).or_(sizes.UNKNOWN) == (0, INF)
    assert Size(1, 4).or_(sizes.NOTHING) == (1, 4)


def test_a_share_is_in_whole_units():
    assert sizes.share(64, 0.1) == 7
    assert sizes.share(INF, 0.1) == INF


@pytest.mark.parametrize(
    ("path", "size"),
    [
        (("object", "driver"), None),
        ((".device",), (0, 0)),
        ((".device", "driver"), (0, 63)),
        ((".device", "allowMultipleAllocations"), (0, 1)),
        ((".device", "nothing"), None),
        ((".device", "nothing", "@keys"), None),
        ((".device", "driver", "@keys"), None),
        ((".device", "attributes"), (0, 32)),
        ((".device", "attributes", "@keys"), (0, 63)),
        ((".device", "attributes", "@values"), (0, 32)),
        ((".device", "attributes", "@items", "@keys"), (0, 32)),
        ((".device", "attributes", "@items", "@items"), (0, 64)),
        ((".device", "attributes", "@items", "model"), (0, 64)),
        ((".device", "attributes", "example.com"), None),
        ((".device", "capacity", "@items", "@values"), (0, 0)),
        ((".device", "capacity", "@items", "memory"), None),
    ],
)
def test_parts_of_a_device(path, size):
    assert sizes.size_of_path(path) == size
