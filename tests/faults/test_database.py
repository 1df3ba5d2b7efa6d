"""A few of the kills of a `claimd sim --db`."""

from tests.faults import database


async def test_what_was_answered_outlives_kills_in_the_middle_of_writes():
    counts = await database.kill(12, seed=1, lives=6)
    assert (counts["kills"], counts["files"]) == (12, 2)
    assert counts["writes"] > 0, "else this would show nothing"


def test_what_may_have_become_of_an_object():
    known = database.Known(answered=(1, "10"))
    assert known.allows((1, "10"))
    assert not known.allows((1, "11")), "nobody wrote it again"
    assert not known.allows((2, "11"))
    assert not known.allows(None)

    known.under_way = [2]
    assert known.allows((1, "10"))
    assert known.allows((2, "11"))
    assert not known.allows(None)
    known.under_way = [None]
    assert known.allows(None)
