"""The short run of the hostile API server: every scenario but the longest, with some seconds of
trouble each.
"""

import asyncio

import pytest

from tests.faults import hostile
from tests.support import progress

NAMES = [name for name, trouble in hostile.TROUBLES.items() if not trouble.long]


@pytest.fixture(scope="module")
def failed():
    def tell(sentence):
        print(sentence)
        progress.moved()

    playable = [name for name in NAMES if not hostile.missing(name)]
    return asyncio.run(hostile.suffer_all(playable, hostile.SHORT, 6, tell))


@pytest.mark.parametrize("name", NAMES)
def test_claims_survive_a_sick_api_server(name, failed):
    if lack := hostile.missing(name):
        pytest.skip(lack)
    assert name not in failed, failed[name]
