"""What the campaign of errors found, as the errors that show it, one after the other in one life."""

import pytest

from tests.faults import errors, shim

FOUND = (
    "start/hardware/stat/EDQUOT/0/1",  # a stack trace in the place of a sentence
    "stop/checkpoints/close/ESTALE/0/2",  # the same at the end, for a file that is closed
    "scan/hardware/read/ENFILE/1/1",  # a stack trace for an event that could not be read
)


@pytest.mark.skipif(not shim.is_possible(), reason="there is no C compiler")
async def test_an_error_that_did_harm_does_none():
    campaign = errors.Campaign(0, len(FOUND), has_two=False)
    await campaign.only([errors.Point.parse(point) for point in FOUND], 1)
    print(campaign.report(0.0))
    assert not campaign.broken, campaign.broken[0]
    assert campaign.tried >= len(FOUND) - 1
