"""The simulated scheduler's decisions about claims on shared GPUs, compared with a real
kube-scheduler's.

The recordings are in tests/cases/pending/shared.jsonl; `python -m tests.cluster.pending --shared`
recreates them.
"""

import pytest

from tests.support import recorded_shares


@pytest.fixture(scope="module")
def recorded_worlds():
    return recorded_shares.worlds()


def test_there_is_enough_to_compare(recorded_worlds):
    outcomes = recorded_shares.outcomes(recorded_worlds)
    assert outcomes["worlds"] >= 200
    kinds = (
        "bound",
        "Unschedulable",
        "shares by memory",
        "shares by count",
        "shares without limit",
    )
    assert min(outcomes[kind] for kind in kinds) >= 50, outcomes
    assert outcomes["devices alone"] >= 50 and outcomes["gone"] >= 50, outcomes


@pytest.mark.slow
def test_the_simulated_scheduler_decides_the_same(recorded_worlds):
    """Devices, amounts and reasons of refusal are equal for each request."""
    different = {}
    for world in recorded_worlds:
        for question in recorded_shares.questions(world):
            text = recorded_shares.difference(question)
            if text:
                different[question.name] = text
    assert different == {}


def test_a_step_less_or_another_device_would_be_seen(recorded_worlds):
    """The comparison detects differences; otherwise the test above could not fail."""
    for world in recorded_worlds:
        for question in recorded_shares.questions(world):
            for results in question.scheduler.get("allocated", {}).values():
                for result in results:
                    _falsify_each(question, result)
        if world["seed"] >= 10:
            break


def _falsify_each(question, result):
    for name, value in list(result.items()):
        result[name] = {"memory": "7"} if isinstance(value, dict) else f"not {value}"
        assert recorded_shares.difference(question)
        result[name] = value
    assert not recorded_shares.difference(question)
