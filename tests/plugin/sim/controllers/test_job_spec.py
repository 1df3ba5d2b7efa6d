"""The spec of a Job: when a pod has failed, and whether its index is one of the Job."""

import pytest

from claimd.sim.controllers import job_indexes
from claimd.sim.controllers.job_spec import JobSpec


def spec(**fields):
    return JobSpec({"spec": {"template": {}, **fields}})


def pod(phase="Running", index=None, terminating=False):
    metadata = {"name": "p", "namespace": "default", "annotations": {}}
    if index is not None:
        metadata["annotations"][job_indexes.ANNOTATION] = index
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("index", "is_valid"), [("0", True), ("2", True), ("3", False), ("x", False), (None, False)]
)
def test_an_indexed_job_has_as_many_indexes_as_completions(index, is_valid):
    indexed = spec(completionMode="Indexed", completions=3)
    assert indexed.has_valid_index(pod(index=index)) is is_valid
    assert spec(completions=3).has_valid_index(pod(index=index))


def test_a_terminating_pod_has_failed_unless_only_failed_pods_are_replaced():
    ending = pod(terminating=True)
    assert spec().is_failed(ending)
    assert not spec(podReplacementPolicy="Failed").is_failed(ending)
    assert spec(podReplacementPolicy="Failed").is_failed(pod("Failed", terminating=True))
    assert not spec().is_failed(pod("Succeeded", terminating=True))
    assert not spec().is_failed(pod())


def test_the_policy_may_ignore_a_failure():
    disruption = {"type": "DisruptionTarget", "status": "True"}
    rule = {"action": "Ignore", "onPodConditions": [disruption]}
    evicted = pod("Failed")
    evicted["status"]["conditions"] = [disruption]
    assert not spec(podFailurePolicy={"rules": [rule]}).counts(evicted)
    assert spec(podFailurePolicy={"rules": [rule]}).counts(pod("Failed"))
    assert spec().counts(evicted)
