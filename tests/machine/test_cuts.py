"""What a loss of power may leave of a disk."""

import random

from tests.machine.cuts import Recording, Replay, draw
from tests.machine.disk import BLOCK, Fact, Flush, Write

OLD, NEW = b"o" * BLOCK, b"n" * BLOCK


def recording(*events):
    return Recording(
        file_system="ext4", size=8 * BLOCK, ground={0: OLD, 1: OLD}, events=list(events), claims={}
    )


def left(recording_, moment, variant, seed=1):
    replay = Replay(recording_)
    replay.go_to(moment)
    return replay.remains(variant, random.Random(seed)).read(0, 2 * BLOCK)


def test_what_is_flushed_is_kept_and_what_is_not_may_be():
    recording_ = recording(Write(0, NEW), Flush(), Write(BLOCK, NEW))
    assert left(recording_, 3, "none") == NEW + OLD
    assert left(recording_, 3, "all") == NEW + NEW
    assert left(recording_, 1, "none") == OLD + OLD


def test_each_block_of_a_write_is_kept_by_itself():
    recording_ = recording(Write(0, NEW + NEW))
    seen = {left(recording_, 1, "some", seed) for seed in range(50)}
    assert seen == {OLD + OLD, OLD + NEW, NEW + OLD, NEW + NEW}


def test_a_replay_goes_back():
    replay = Replay(
        recording(Fact("c", "preparing"), Write(0, NEW), Flush(), Fact("c", "prepared"))
    )
    replay.go_to(4)
    assert replay.states == {"c": "prepared"}
    replay.go_to(1)
    assert replay.states == {"c": "preparing"}
    assert replay.remains("all", random.Random(1)).read(0, 1) == b"o"


def test_cuts_begin_at_the_first_answer_and_are_all_different():
    events = [Write(0, NEW), Fact("c", "preparing"), Flush(), Fact("c", "prepared")]
    events += [Write(0, OLD), Fact("c", "gone")]
    cuts = draw(events, ("prepared", "gone"), 100, seed=1)
    assert cuts == ["4/all", "5/all", "5/none", "5/some", "6/all", "6/none", "6/some"]
