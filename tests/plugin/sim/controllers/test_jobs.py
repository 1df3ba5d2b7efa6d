"""Jobs from their creation to their end, on nodes with simulated time."""

import pytest

from tests.support.played_cluster import PlayedCluster, Refused
from tests.support.workload_objects import conditions, has, job, reasons

TRACKING = "batch.kubernetes.io/job-tracking"


@pytest.fixture
def cluster():
    return PlayedCluster()


def run(cluster, **spec):
    """Creates a Job, and returns it when it has ended."""
    cluster.create("jobs", job(**spec))
    cluster.until(lambda: has(cluster, "Complete") or has(cluster, "Failed"))
    return cluster.find("jobs", "demo")


def test_one_that_succeeds(cluster):
    done = run(cluster, command="sleep 2")
    assert conditions(done) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    status = done["status"]
    assert (status["succeeded"], status["completionTime"]) == (1, "2026-01-01T00:00:03Z")
    assert {"active", "failed"}.isdisjoint(status)
    assert reasons(cluster) == {"SuccessfulCreate": 1, "Completed": 1}


def test_its_pod_says_whose_it_is(cluster):
    cluster.create("jobs", job(command="sleep 2"))
    cluster.pass_time(2)
    (pod,) = cluster.list("pods")
    (owner,) = cluster.list("jobs")
    uid = owner["metadata"]["uid"]
    metadata = pod["metadata"]
    assert metadata["labels"] == {
        "job-name": "demo",
        "batch.kubernetes.io/job-name": "demo",
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
    }
    assert metadata["generateName"] == "demo-"
    assert metadata["finalizers"] == [TRACKING]
    reference = metadata["ownerReferences"][0]
    assert (reference["apiVersion"], reference["kind"]) == ("batch/v1", "Job")
    assert owner["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def test_a_pod_keeps_its_finalizer_until_it_is_counted(cluster):
    cluster.create("jobs", job(command="sleep 2"))
    seen = []
    while not has(cluster, "Complete"):
        wants, wait = cluster.step()
        assert wants or wait
        status = cluster.find("jobs", "demo").get("status") or {}
        uncounted = status.get("uncountedTerminatedPods") or {}
        held = [
            TRACKING in (pod["metadata"].get("finalizers") or ()) for pod in cluster.list("pods")
        ]
        seen.append((status.get("succeeded", 0), len(uncounted.get("succeeded", ())), any(held)))
    # named first, then without its finalizer, then counted
    assert list(dict.fromkeys(seen))[-4:] == [
        (0, 0, True),
        (0, 1, True),
        (0, 1, False),
        (1, 0, False),
    ]


def test_as_many_at_a_time_as_it_says(cluster):
    most = 0

    def done():
        nonlocal most
        most = max(most, cluster.find("jobs", "demo")["status"].get("active", 0))
        return has(cluster, "Complete")

    cluster.create("jobs", job(command="sleep 1", completions=5, parallelism=2))
    cluster.until(done)
    assert most == 2
    assert len(cluster.list("pods")) == 5


def test_without_completions_the_first_success_ends_it(cluster):
    done = run(cluster, command="sleep 1", parallelism=3)
    assert done["status"]["succeeded"] == 3, "those that ran may end"
    assert len(cluster.list("pods")) == 3


def test_each_failure_is_waited_out_twice_as_long(cluster):
    failed = run(cluster, command="exit 3", backoffLimit=2)
    assert conditions(failed) == [
        ("FailureTarget", "True", "BackoffLimitExceeded"),
        ("Failed", "True", "BackoffLimitExceeded"),
    ]
    assert failed["status"]["failed"] == 3
    created = sorted(pod["metadata"]["creationTimestamp"][-6:] for pod in cluster.list("pods"))
    assert created == ["00:00Z", "00:11Z", "00:32Z"]
    assert reasons(cluster) == {"SuccessfulCreate": 3, "BackoffLimitExceeded": 1}


def test_containers_that_are_started_again_count_as_well(cluster):
    failed = run(cluster, command="exit 3", restartPolicy="OnFailure", backoffLimit=2)
    assert failed["status"]["failed"] == 1
    assert cluster.list("pods") == [], "what still ran is ended"
    assert reasons(cluster)["SuccessfulDelete"] == 1


def test_what_lasts_too_long_is_ended(cluster):
    failed = run(cluster, command="sleep forever", activeDeadlineSeconds=5, parallelism=2)
    assert conditions(failed)[-1] == ("Failed", "True", "DeadlineExceeded")
    assert failed["status"]["failed"] == 2
    assert failed["status"]["terminating"] == 0


def test_after_its_time_it_goes_with_its_pods(cluster):
    cluster.create("jobs", job(command="sleep 1", ttlSecondsAfterFinished=30))
    cluster.until(lambda: has(cluster, "Complete"))
    ended = cluster.now
    cluster.until(lambda: not cluster.list("jobs"))
    assert 30 <= cluster.now - ended <= 31
    cluster.settle()
    assert cluster.list("pods") == []


def test_suspended_and_resumed(cluster):
    cluster.create("jobs", job(command="sleep 5", suspend=True))
    cluster.settle()
    waiting = cluster.find("jobs", "demo")
    assert conditions(waiting) == [("Suspended", "True", "JobSuspended")]
    assert "startTime" not in waiting["status"]
    assert cluster.list("pods") == []

    cluster.patch("jobs", "demo", {"spec": {"suspend": False}})
    cluster.pass_time(2)
    cluster.patch("jobs", "demo", {"spec": {"suspend": True}})
    cluster.pass_time(5)
    assert cluster.list("pods") == []
    assert "failed" not in cluster.find("jobs", "demo")["status"], "what it ends has not failed"

    cluster.patch("jobs", "demo", {"spec": {"suspend": False}})
    cluster.until(lambda: has(cluster, "Complete"))
    assert reasons(cluster) == {
        "Suspended": 2,
        "Resumed": 2,
        "SuccessfulCreate": 2,
        "SuccessfulDelete": 1,
        "Completed": 1,
    }


def test_a_pod_that_somebody_deletes_counts_as_failed_and_is_replaced(cluster):
    cluster.create("jobs", job(command="sleep 5"))
    cluster.pass_time(2)
    (pod,) = cluster.list("pods")
    cluster.delete("pods", pod["metadata"]["name"])
    cluster.until(lambda: has(cluster, "Complete"))
    status = cluster.find("jobs", "demo")["status"]
    assert (status["succeeded"], status["failed"]) == (1, 1)
    assert cluster.now - 1767225600 > 10, "the next one waits for the back-off"


def test_with_podReplacementPolicy_Failed_the_next_pod_waits_until_the_one_before_is_gone(cluster):
    cluster.create("jobs", job(command="sleep 5", grace=20, podReplacementPolicy="Failed"))
    cluster.pass_time(2)
    (pod,) = cluster.list("pods")
    cluster.delete("pods", pod["metadata"]["name"])
    cluster.pass_time(15)
    status = cluster.find("jobs", "demo")["status"]
    assert (status.get("active", 0), status["terminating"], status.get("failed", 0)) == (0, 1, 0)
    cluster.until(lambda: has(cluster, "Complete"))
    assert cluster.find("jobs", "demo")["status"]["failed"] == 1


def test_indexes(cluster):
    cluster.create("jobs", indexed_job(completions=5, parallelism=2, command="sleep 1"))
    cluster.pass_time(1)
    by_index = {}
    for pod in cluster.list("pods"):
        annotation = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == annotation
        by_index[annotation] = pod
    assert sorted(by_index) == ["0", "1"]
    assert by_index["1"]["spec"]["hostname"] == "demo-1"
    assert by_index["1"]["metadata"]["generateName"] == "demo-1-"
    (variable,) = by_index["1"]["spec"]["containers"][0]["env"]
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert variable == {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": path}},
    }

    cluster.until(lambda: has(cluster, "Complete"))
    assert cluster.find("jobs", "demo")["status"]["completedIndexes"] == "0-4"


def test_as_many_indexes_as_there_can_be(cluster):
    cluster.create("jobs", indexed_job(completions=2**31 - 1, parallelism=3, command="sleep 1"))
    cluster.pass_time(7)
    assert cluster.find("jobs", "demo")["status"]["completedIndexes"] == "0-8"


def indexed_job(**spec):
    return job(completionMode="Indexed", **spec)


def test_an_index_that_fails_is_tried_again_by_itself(cluster):
    cluster.create("jobs", indexed_job(completions=2, parallelism=2, command="exit 1", perIndex=1))
    cluster.until(lambda: has(cluster, "Failed"))
    done = cluster.find("jobs", "demo")
    assert conditions(done)[-1] == ("Failed", "True", "FailedIndexes")
    assert done["status"]["failedIndexes"] == "0,1"
    counts = []
    for pod in cluster.list("pods"):
        annotations = pod["metadata"]["annotations"]
        index = annotations["batch.kubernetes.io/job-completion-index"]
        counts.append((index, annotations["batch.kubernetes.io/job-index-failure-count"]))
    assert sorted(counts) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]


def test_more_failed_indexes_than_allowed_end_it(cluster):
    spec = {"completions": 4, "parallelism": 1, "perIndex": 0, "maxFailedIndexes": 1}
    cluster.create("jobs", indexed_job(command="exit 1", **spec))
    cluster.until(lambda: has(cluster, "Failed"))
    done = cluster.find("jobs", "demo")
    assert conditions(done)[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")
    assert done["status"]["failedIndexes"] == "0,1"


def test_a_success_policy_ends_it_before_all_have_succeeded(cluster):
    policy = {"rules": [{"succeededIndexes": "0"}]}
    spec = {"completions": 3, "parallelism": 1, "successPolicy": policy}
    cluster.create("jobs", indexed_job(command="sleep 1", **spec))
    cluster.until(lambda: has(cluster, "Complete"))
    done = cluster.find("jobs", "demo")
    assert conditions(done)[-1] == ("Complete", "True", "SuccessPolicy")
    assert done["status"]["completedIndexes"] == "0"
    assert "failed" not in done["status"]


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        (
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
            "PodFailurePolicy",
        ),
        (
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3]}},
            "BackoffLimitExceeded",
        ),
        (
            {"action": "FailJob", "onPodConditions": [{"type": "Ready", "status": "False"}]},
            "PodFailurePolicy",
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}},
            "BackoffLimitExceeded",
        ),
    ],
)
def test_a_failure_policy(cluster, rule, outcome):
    failed = run(cluster, command="exit 3", backoffLimit=1, podFailurePolicy={"rules": [rule]})
    assert conditions(failed)[-1] == ("Failed", "True", outcome)
    assert failed["status"]["failed"] == (1 if outcome == "PodFailurePolicy" else 2)


def test_a_failure_that_is_ignored_does_not_count(cluster):
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}
    spec = {"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}}
    cluster.create("jobs", job(command="exit 3", **spec))
    cluster.pass_time(40)
    status = cluster.find("jobs", "demo")["status"]
    assert "failed" not in status
    assert conditions(cluster.find("jobs", "demo")) == []
    assert len(cluster.list("pods")) > 1


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleted_it_takes_its_pods_with_it(cluster, policy):
    cluster.create("jobs", job(command="sleep forever"))
    cluster.pass_time(3)
    cluster.delete("jobs", "demo", policy)
    cluster.pass_time(5)
    assert (cluster.list("jobs"), cluster.list("pods")) == ([], [])


@pytest.mark.parametrize("policy", ["Orphan", ""])
def test_deleted_alone_or_without_a_word_it_leaves_them(cluster, policy):
    cluster.create("jobs", job(command="sleep forever"))
    cluster.pass_time(3)
    cluster.delete("jobs", "demo", policy)
    cluster.pass_time(5)
    assert cluster.list("jobs") == []
    (pod,) = cluster.list("pods")
    assert {"ownerReferences", "finalizers"}.isdisjoint(pod["metadata"])


def test_a_job_of_another_controller_is_left_to_it(cluster):
    cluster.create("jobs", job(command="sleep 1", managedBy="example.com/queue"))
    cluster.pass_time(5)
    assert cluster.list("pods") == []


def test_smaller_parallelism_takes_pods_away_and_no_failure_is_counted(cluster):
    cluster.create("jobs", job(command="sleep 5", completions=4, parallelism=3))
    cluster.pass_time(2)
    cluster.patch("jobs", "demo", {"spec": {"parallelism": 1}})
    cluster.pass_time(2)
    assert len(cluster.list("pods")) == 1
    cluster.until(lambda: has(cluster, "Complete"))
    assert "failed" not in cluster.find("jobs", "demo")["status"]


def test_what_it_cannot_do_is_said_once(cluster):
    gang = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    cluster.create("jobs", job(command="sleep 1", scheduling=gang))
    cluster.until(lambda: has(cluster, "Complete"))
    assert reasons(cluster)["NotSimulated"] == 1


def test_a_template_that_starts_its_containers_again_for_ever_is_refused(cluster):
    with pytest.raises(Refused, match='valid values: "OnFailure", "Never"'):
        cluster.create("jobs", job(command="sleep 1", restartPolicy="Always"))
