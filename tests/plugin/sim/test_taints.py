"""The effect of node taints on pods, in simulated time, with the real rules of scheduler and
controllers.

tests/cases/taints contains recordings of Kubernetes' own controllers in the same scenarios,
written by `python -m tests.cluster.taints`.
"""

import json
from pathlib import Path

import pytest

from tests.support import taint_scenarios
from tests.support.played_taints import PlayedTaints

CASES = Path(__file__).parents[2] / "cases" / "taints"
# By scenario: the pods that have a place at the end, and those that are deleted.
ENDS = {
    "cordon_keeps_a_pod_waiting": ("", ""),
    "no_execute_and_one_of_two_is_not_tolerated": ("pq", "p"),
    "no_execute_and_the_first_toleration_counts": ("pq", "p"),
    "no_execute_ends_a_pod": ("pq", "p"),
    "no_execute_ends_a_pod_after_a_while": ("pq", "p"),
    "no_execute_that_goes_in_time": ("pq", "q"),
    "no_schedule_keeps_a_pod_waiting": ("", ""),
    "no_schedule_lets_stay_what_is_there": ("p", ""),
    "no_schedule_that_goes_lets_a_pod_come": ("p", ""),
    "prefer_no_schedule_is_only_a_preference": ("p", ""),
    "toleration_of_another_effect": ("q", ""),
    "toleration_of_everything": ("p", ""),
    "toleration_with_the_value": ("p", ""),
}


def test_every_scenario_has_its_end_and_its_recording():
    assert ENDS.keys() == taint_scenarios.ALL.keys()
    assert {path.stem for path in CASES.glob("*.json")} == ENDS.keys()


@pytest.mark.parametrize("name", taint_scenarios.ALL)
def test_how_it_ends(name):
    cluster = PlayedTaints()
    taint_scenarios.ALL[name](cluster)
    seen = taint_scenarios.seen(cluster)
    assert seen == json.loads((CASES / f"{name}.json").read_text())
    placed = "".join(pod for pod, outcome in seen.items() if outcome["placed"])
    deleted = "".join(pod for pod, outcome in seen.items() if outcome["deleted"])
    assert (placed, deleted) == ENDS[name]
    for pod, outcome in seen.items():
        reasons = {type_: said[1] for type_, said in outcome["conditions"].items()}
        assert reasons["PodScheduled"] == ("" if pod in placed else "Unschedulable")
        assert reasons.get("DisruptionTarget") == (
            "DeletionByTaintManager" if pod in deleted else None
        )
