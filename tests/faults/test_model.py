"""The short run of the model campaign: 200 runs of some 50 steps. FAULTS_SEED repeats one that
failed.
"""

import os
import random

from tests.faults import model


def test_every_promise_holds_whatever_happens():
    seed = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"FAULTS_SEED={seed}")
    before = model.figures.copy()
    model.run(seed, 200)
    did = model.figures - before
    print(dict(did))
    assert did["runs"] >= 200
    assert did["steps"] >= 50 * did["runs"]
    # Some seeds have few of one kind: one had 63 freezes, where others have 170 to 591.
    for what in ("prepared", "unprepared", "refusals", "deaths", "freezes", "reboots"):
        assert did[what] > 20, what
    assert did["harmed"] > 5
