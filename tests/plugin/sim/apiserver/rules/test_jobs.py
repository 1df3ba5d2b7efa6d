"""Tests of defaults and validation of Jobs."""

import pytest

from tests.support.played_cluster import PlayedCluster, Refused
from tests.support.workload_objects import job


@pytest.fixture
def cluster():
    return PlayedCluster()


def test_defaults(cluster):
    spec = cluster.create("jobs", job())["spec"]
    assert {name: spec[name] for name in sorted(spec) if name not in ("template", "selector")} == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    }
    assert spec["template"]["spec"]["schedulerName"] == "default-scheduler"


def test_defaults_that_depend_on_what_is_said(cluster):
    spec = cluster.create("jobs", job("work-queue", parallelism=3))["spec"]
    assert "completions" not in spec
    indexed = job("indexed", completionMode="Indexed", completions=2, perIndex=1)
    assert cluster.create("jobs", indexed)["spec"]["backoffLimit"] == 2**31 - 1
    rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}
    policed = job("policed", podFailurePolicy={"rules": [rule]})
    assert cluster.create("jobs", policed)["spec"]["podReplacementPolicy"] == "Failed"


def test_labels_of_the_template_become_those_of_the_job(cluster):
    labelled = job()
    labelled["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    assert cluster.create("jobs", labelled)["metadata"]["labels"] == {"app": "a"}


def test_a_selector_of_its_own(cluster):
    own = job(manualSelector=True, selector={"matchLabels": {"app": "a"}})
    own["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    spec = cluster.create("jobs", own)["spec"]
    assert spec["template"]["metadata"]["labels"] == {"app": "a"}
    own["spec"]["template"]["metadata"] = {"labels": {"app": "b"}}
    with pytest.raises(Refused, match="`selector` does not match template `labels`"):
        cluster.create("jobs", own)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"parallelism": -1}, "spec.parallelism: Invalid value: -1: must be greater than or equal"),
        ({"completionMode": "Other"}, 'spec.completionMode: Unsupported value: "Other"'),
        (
            {"completionMode": "Indexed", "parallelism": 1},
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        ({"perIndex": 1}, "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed"),
        (
            {"maxFailedIndexes": 1},
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes",
        ),
        ({"successPolicy": {"rules": []}}, "spec.successPolicy: Invalid value"),
        ({"podReplacementPolicy": "Never"}, "spec.podReplacementPolicy: Unsupported value"),
        (
            {"podFailurePolicy": {"rules": [{"action": "FailJob"}]}},
            "specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [
                        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0]}}
                    ]
                }
            },
            "requires the backoffLimitPerIndex to be set",
        ),
        ({"selector": {"matchLabels": {"app": "a"}}}, "`selector` not auto-generated"),
    ],
)
def test_what_is_refused(cluster, spec, message):
    with pytest.raises(Refused) as refusal:
        cluster.create("jobs", job(**spec))
    assert message in str(refusal.value)
    assert refusal.value.code == 422


@pytest.mark.parametrize(
    "changed",
    [{"completions": 3}, {"completionMode": "Indexed"}, {"template": {"spec": {"nodeName": "n"}}}],
)
def test_what_may_not_change(cluster, changed):
    cluster.create("jobs", job(completions=2))
    with pytest.raises(Refused, match="field is immutable"):
        cluster.patch("jobs", "demo", {"spec": changed})


def test_a_suspended_job_may_be_sent_to_other_nodes(cluster):
    cluster.create("jobs", job(suspend=True))
    selector = {"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}
    cluster.patch("jobs", "demo", {"spec": selector})
    cluster.patch("jobs", "demo", {"spec": {"suspend": False}})
    with pytest.raises(Refused, match="field is immutable"):
        cluster.patch("jobs", "demo", {"spec": {"template": {"spec": {"nodeSelector": None}}}})


def test_an_indexed_job_becomes_larger_as_a_whole(cluster):
    cluster.create("jobs", job(completionMode="Indexed", completions=2, parallelism=2))
    cluster.patch("jobs", "demo", {"spec": {"completions": 3, "parallelism": 3}})
    with pytest.raises(Refused, match="can only be modified in tandem with spec.parallelism"):
        cluster.patch("jobs", "demo", {"spec": {"completions": 5}})


def true(*types):
    return {"conditions": [{"type": type_, "status": "True", "reason": "R"} for type_ in types]}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (true("Complete"), "without the SuccessCriteriaMet=true condition"),
        (true("Failed"), "without the FailureTarget=true condition"),
        (true("FailureTarget", "Failed") | {"active": 1}, "active>0 is invalid for finished job"),
        ({"ready": 2, "active": 1}, "cannot set more ready pods than active"),
    ],
)
def test_what_no_controller_may_say(cluster, status, message):
    stored = cluster.create("jobs", job())
    with pytest.raises(Refused, match=message):
        cluster.put_status("jobs", stored | {"status": status})


def test_a_job_that_has_failed_stays_so(cluster):
    stored = cluster.create("jobs", job())
    failed = cluster.put_status("jobs", stored | {"status": true("FailureTarget", "Failed")})
    with pytest.raises(Refused, match="cannot disable the terminal Failed=True condition"):
        cluster.put_status("jobs", failed | {"status": {}})
