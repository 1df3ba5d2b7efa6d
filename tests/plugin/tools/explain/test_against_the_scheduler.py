"""Our answers about waiting pods, compared with those of a real kube-scheduler.

The recordings are in tests/cases/pending. `python -m tests.cluster.pending` records them again.
"""

import json

import msgspec
import pytest

from claimd.tools.explain import objects, pending
from tests.cluster.pending.situations import SITUATIONS
from tests.support import mixed_fleets, recorded_pods, samples, simulated_pods

# Rules that claimd names but does not check. The simulated scheduler does not have them.
NOT_MODELLED = {"a-volume-that-is-not-there", "a-volume-that-nobody-has-made"}


def names(recorded):
    return recorded.name


def test_there_is_enough_to_compare():
    recorded_names = [recorded.name for recorded in recorded_pods.situations()]
    assert sorted(recorded_names) == sorted(situation.name for situation in SITUATIONS)
    waiting = [recorded for recorded in recorded_pods.situations() if not recorded.node]
    assert len(waiting) >= 60
    bound = [recorded for recorded in recorded_pods.random_pods() if recorded.node]
    assert len(recorded_pods.random_pods()) >= 300 and len(bound) >= 100


@pytest.mark.parametrize("recorded", recorded_pods.situations(), ids=names)
def test_situations(recorded):
    assert recorded_pods.difference_of_explain(recorded) == ""
    if recorded.name not in NOT_MODELLED:
        assert recorded_pods.difference_of_simulation(recorded) == ""


@pytest.mark.parametrize("name", sorted(NOT_MODELLED))
def test_what_is_not_looked_at_is_named(name):
    (recorded,) = (each for each in recorded_pods.situations() if each.name == name)
    assert recorded_pods.explained(recorded).names_what_it_does_not_look_at


@pytest.mark.sampled
def test_random_pods():
    different = {}
    pods = recorded_pods.random_pods()
    for recorded in pods[: samples.share(len(pods))]:
        texts = (
            recorded_pods.difference_of_explain(recorded),
            recorded_pods.difference_of_simulation(recorded),
        )
        if any(texts):
            different[recorded.name] = texts
    assert different == {}


@pytest.mark.sampled
def test_random_pods_of_the_simulated_scheduler():
    """Runs a sample of the campaign of tests.support.simulated_pods."""
    different = {}
    for seed in range(samples.share(60)):
        for recorded in simulated_pods.pods(seed):
            text, _ = simulated_pods.difference(recorded)
            if text:
                different[recorded.name] = text
    assert different == {}


@pytest.mark.slow
def test_mixes_of_all_machines():
    """Runs a sample of the campaign of tests.support.mixed_fleets, with all outcomes."""
    outcomes, different = mixed_fleets.run(200, 30)
    assert different == {}
    assert set(outcomes) >= {"bound", "pending", "an error"}


@pytest.mark.slow
def test_two_thousand_mixes_of_all_machines():
    outcomes, different = mixed_fleets.run(0, 2000)
    assert different == {}
    assert outcomes["not decided in time"] < 20
    assert min(outcomes["bound"], outcomes["an error"]) > 200


@pytest.mark.parametrize("recorded", recorded_pods.situations(), ids=names)
def test_objects_as_an_api_server_writes_them_get_the_same_answer(recorded):
    known = objects.Objects(subjects=frozenset({("default", recorded.pod)}))
    for document in recorded.objects:
        version = document["apiVersion"].rpartition("/")[2]
        known.add_json(msgspec.Raw(json.dumps(document)), document["kind"], version)
    subject = pending.find_subject(known, f"pod/{recorded.pod}", "default")
    answer = pending.report(known, subject, time_limit=1.0)
    # What is decided within the time limit differs from run to run.
    if answer.verdict != "unknown":
        assert recorded_pods.explained(recorded).answer == answer
