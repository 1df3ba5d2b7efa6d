"""No input ends in a traceback: a sample of the campaign of tests.support.damaged_worlds."""

import pytest

from claimd.common import errors
from tests.support import damaged_worlds, samples


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_clusters():
    for seed in range(300):
        damaged_worlds.explain(damaged_worlds.documents(seed))


@pytest.mark.sampled
@pytest.mark.timeout(300)
def test_damaged_clusters():
    answered = 0
    for seed in range(samples.share(600)):
        cluster = damaged_worlds.documents(seed)
        damaged_worlds.damage(seed, cluster)
        try:
            damaged_worlds.explain(cluster)
            answered += 1
        except errors.Fatal as failure:
            assert "cannot be read" in str(failure) or "is no map" in str(failure)
    assert answered > (200 if samples.ALL else 30)
