"""Simulated Jobs and Deployments, compared with recordings of Kubernetes' own controllers.

`tests/cluster/workloads.py` records them; these tests run the same scenarios in simulated time.
"""

import json
from pathlib import Path

import pytest

from tests.support import samples, workload_scenarios
from tests.support.played_cluster import PlayedCluster

CASES = Path(__file__).parents[2] / "cases" / "workloads"


def test_every_scenario_was_recorded():
    recorded = {path.stem for path in CASES.glob("*.json")}
    assert recorded == set(workload_scenarios.ALL)


@pytest.mark.parametrize("name", samples.parameters([[name] for name in workload_scenarios.ALL]))
def test_it_ends_as_it_does_with_the_real_controllers(name):
    cluster = PlayedCluster()
    workload_scenarios.ALL[name](cluster)
    cluster.pass_time(3)
    assert workload_scenarios.seen(cluster) == json.loads((CASES / f"{name}.json").read_text())
