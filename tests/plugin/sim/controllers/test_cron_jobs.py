"""CronJobs on nodes with simulated time, which starts at midnight of 1 January 2026."""

import pytest

from tests.support.played_cluster import BEGINNING, PlayedCluster, Refused
from tests.support.workload_objects import job, reasons

MINUTE = 60


@pytest.fixture
def cluster():
    return PlayedCluster()


def cron_job(schedule="*/2 * * * *", command="sleep 5", name="demo", jobs=None, **spec):
    template = {"metadata": {"labels": {"app": "demo"}}, "spec": job(command=command)["spec"]}
    template["spec"] |= jobs or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": schedule, "jobTemplate": template} | spec,
    }


def names(cluster):
    """Returns the minutes since midnight that the present Jobs are for."""
    first = int(BEGINNING) // MINUTE
    names_ = []
    for job_ in cluster.list("jobs"):
        names_.append(int(job_["metadata"]["name"].removeprefix("demo-")) - first)
    return sorted(names_)


def status(cluster):
    return cluster.find("cronjobs", "demo")["status"]


def test_a_job_for_each_time(cluster):
    cluster.create("cronjobs", cron_job())
    cluster.pass_time(2 * MINUTE - 1)
    assert names(cluster) == []
    cluster.pass_time(2)
    assert names(cluster) == [2]
    (job_,) = cluster.list("jobs")
    assert job_["metadata"]["labels"] == {"app": "demo"}
    annotations = job_["metadata"]["annotations"]
    assert annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2026-01-01T00:02:00Z"
    (owner,) = job_["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("CronJob", True)
    (active,) = status(cluster)["active"]
    assert (active["kind"], active["uid"]) == ("Job", job_["metadata"]["uid"])
    assert status(cluster)["lastScheduleTime"] == "2026-01-01T00:02:00Z"

    cluster.pass_time(10)
    assert "active" not in status(cluster)
    assert status(cluster)["lastSuccessfulTime"] == "2026-01-01T00:02:07Z"
    assert reasons(cluster, "CronJob") == {"SuccessfulCreate": 1, "SawCompletedJob": 1}
    cluster.pass_time(2 * MINUTE)
    assert names(cluster) == [2, 4]


def test_old_jobs_go(cluster):
    limits = {"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 0}
    cluster.create("cronjobs", cron_job(**limits))
    cluster.pass_time(9 * MINUTE)
    assert names(cluster) == [6, 8]
    assert len(cluster.list("pods")) == 2

    cluster.create("cronjobs", cron_job(name="bad", command="exit 1", jobs={"backoffLimit": 0}))
    cluster.patch("cronjobs", "bad", {"spec": limits})
    cluster.pass_time(5 * MINUTE + 30)
    assert not any(job_["metadata"]["name"].startswith("bad") for job_ in cluster.list("jobs"))
    assert reasons(cluster, "CronJob")["SuccessfulDelete"] >= 5


@pytest.mark.parametrize(
    ("policy", "left"), [("Allow", [1, 2, 3]), ("Forbid", [1]), ("Replace", [3])]
)
def test_while_the_one_before_still_runs(cluster, policy, left):
    cron_job_ = cron_job("* * * * *", command="sleep 500", concurrencyPolicy=policy)
    cluster.create("cronjobs", cron_job_)
    cluster.pass_time(3 * MINUTE + 10)
    assert names(cluster) == left
    if policy == "Forbid":
        assert reasons(cluster, "CronJob")["JobAlreadyActive"] == 1
    if policy == "Replace":
        assert reasons(cluster, "CronJob")["SuccessfulDelete"] == 2


def test_suspended_nothing_comes_and_afterwards_the_latest(cluster):
    cluster.create("cronjobs", cron_job(suspend=True))
    cluster.pass_time(7 * MINUTE)
    assert names(cluster) == []
    cluster.patch("cronjobs", "demo", {"spec": {"suspend": False}})
    cluster.pass_time(10)
    assert names(cluster) == [6]


def test_what_would_start_too_late_does_not_start(cluster):
    cluster.create("cronjobs", cron_job("@hourly", suspend=True, startingDeadlineSeconds=30))
    cluster.pass_time(61 * MINUTE)
    cluster.patch("cronjobs", "demo", {"spec": {"suspend": False}})
    cluster.pass_time(MINUTE)
    assert names(cluster) == []
    cluster.pass_time(60 * MINUTE)
    assert names(cluster) == [120]


def test_many_missed_times_are_told_and_one_job_comes(cluster):
    cluster.create("cronjobs", cron_job("* * * * *", suspend=True))
    cluster.pass_time(150 * MINUTE)
    cluster.patch("cronjobs", "demo", {"spec": {"suspend": False}})
    cluster.pass_time(20)
    assert names(cluster) == [150]
    assert reasons(cluster, "CronJob")["TooManyMissedTimes"] == 1


def test_time_zones(cluster):
    # half past midnight in UTC
    cluster.create("cronjobs", cron_job("30 6 * * *", timeZone="Asia/Dhaka"))
    cluster.pass_time(31 * MINUTE)
    (job_,) = cluster.list("jobs")
    scheduled = job_["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert scheduled == "2026-01-01T06:30:00+06:00"


def test_a_job_that_somebody_makes_from_it(cluster):
    cluster.create("cronjobs", cron_job(suspend=True))
    cluster.settle()
    owner = cluster.find("cronjobs", "demo")["metadata"]
    reference = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "demo",
        "uid": owner["uid"],
        "controller": True,
    }
    manual = job("by-hand", command="sleep 500")
    manual["metadata"]["ownerReferences"] = [reference]
    cluster.create("jobs", manual)
    cluster.pass_time(10)
    assert reasons(cluster, "CronJob") == {"UnexpectedJob": 1}


def test_a_job_that_somebody_deletes_is_not_waited_for(cluster):
    cluster.create("cronjobs", cron_job(command="sleep 500", concurrencyPolicy="Forbid"))
    cluster.pass_time(2 * MINUTE + 5)
    (job_,) = cluster.list("jobs")
    cluster.delete("jobs", job_["metadata"]["name"])
    cluster.pass_time(2 * MINUTE)
    assert names(cluster) == [4]
    assert reasons(cluster, "CronJob")["MissingJob"] == 1


def test_deleted_it_takes_its_jobs_with_it(cluster):
    cluster.create("cronjobs", cron_job(command="sleep 500"))
    cluster.pass_time(2 * MINUTE + 5)
    cluster.delete("cronjobs", "demo")
    cluster.pass_time(5)
    assert (cluster.list("jobs"), cluster.list("pods")) == ([], [])


def test_defaults(cluster):
    spec = cluster.create("cronjobs", cron_job())["spec"]
    names = ("concurrencyPolicy", "failedJobsHistoryLimit", "successfulJobsHistoryLimit", "suspend")
    assert [spec[name] for name in names] == ["Allow", 1, 3, False]
    assert "completions" not in spec["jobTemplate"]["spec"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schedule": "* * * *"}, "spec.schedule: Invalid value"),
        ({"schedule": ""}, "spec.schedule: Required value"),
        ({"schedule": "TZ=UTC * * * * *"}, "use timeZone field instead"),
        ({"timeZone": "Moon/Sea"}, "unknown time zone Moon/Sea"),
        ({"concurrencyPolicy": "Never"}, "spec.concurrencyPolicy: Unsupported value"),
        ({"startingDeadlineSeconds": -1}, "must be greater than or equal to 0"),
        ({"jobs": {"parallelism": -1}}, "spec.jobTemplate.spec.parallelism: Invalid value"),
        ({"name": "a" * 53}, "must be no more than 52 characters"),
    ],
)
def test_what_is_refused(cluster, spec, message):
    with pytest.raises(Refused) as refusal:
        cluster.create("cronjobs", cron_job(**spec))
    assert message in str(refusal.value)
