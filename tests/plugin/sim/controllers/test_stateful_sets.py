"""StatefulSets from their creation to their end, on nodes with simulated time."""

import pytest

from tests.support.played_cluster import PlayedCluster, Refused
from tests.support.workload_objects import reasons, stateful_set


@pytest.fixture
def cluster():
    return PlayedCluster()


def names(cluster):
    return [pod["metadata"]["name"] for pod in cluster.list("pods")]


def versions(cluster):
    """Returns the template version of each pod, by number."""
    return [pod["metadata"]["labels"]["version"] for pod in cluster.list("pods")]


def status(cluster):
    return cluster.find("statefulsets", "demo")["status"]


def set_up(cluster, **spec):
    cluster.create("statefulsets", stateful_set(**spec))
    replicas = spec.get("replicas", 1)
    cluster.until(lambda: status(cluster).get("availableReplicas") == replicas)


def set_version(cluster, version, **spec):
    labels = {"app": "demo", "version": version}
    template = {"metadata": {"labels": labels}}
    cluster.patch("statefulsets", "demo", {"spec": {"template": template} | spec})


def until_updated(cluster, replicas):
    def holds():
        status_ = status(cluster)
        same = status_["currentRevision"] == status_["updateRevision"]
        return same and status_["readyReplicas"] == status_["updatedReplicas"] == replicas

    cluster.until(holds)


def test_pods_come_one_after_the_other(cluster):
    cluster.create("statefulsets", stateful_set(replicas=3, serviceName="peers"))
    counts = []

    def done():
        counts.append(len(names(cluster)))
        return status(cluster).get("readyReplicas") == 3

    cluster.until(done)
    assert list(dict.fromkeys(counts)) == [1, 2, 3]
    assert names(cluster) == ["demo-0", "demo-1", "demo-2"]
    pod = cluster.find("pods", "demo-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("demo-1", "peers")
    labels = pod["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "demo-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"
    assert labels["controller-revision-hash"] == status(cluster)["currentRevision"]
    assert reasons(cluster, "StatefulSet") == {"SuccessfulCreate": 3}


def test_in_parallel_they_come_at_once(cluster):
    cluster.create("statefulsets", stateful_set(replicas=3, podManagementPolicy="Parallel"))
    cluster.settle()
    assert names(cluster) == ["demo-0", "demo-1", "demo-2"]


def test_numbers_may_begin_elsewhere(cluster):
    set_up(cluster, replicas=2, ordinals={"start": 5})
    assert names(cluster) == ["demo-5", "demo-6"]


def test_the_highest_number_goes_first(cluster):
    set_up(cluster, replicas=3)
    cluster.patch("statefulsets", "demo", {"spec": {"replicas": 1}})
    seen = []

    def done():
        seen.append(tuple(names(cluster)))
        return status(cluster)["replicas"] == 1

    cluster.until(done)
    assert list(dict.fromkeys(seen)) == [
        ("demo-0", "demo-1", "demo-2"),
        ("demo-0", "demo-1"),
        ("demo-0",),
    ]


def test_a_pod_that_is_lost_comes_back_under_its_name(cluster):
    set_up(cluster, replicas=2)
    before = cluster.find("pods", "demo-0")["metadata"]["uid"]
    cluster.delete("pods", "demo-0")
    cluster.until(lambda: len(names(cluster)) == 2 and status(cluster)["readyReplicas"] == 2)
    assert cluster.find("pods", "demo-0")["metadata"]["uid"] != before


def test_a_new_template_begins_with_the_highest_number(cluster):
    set_up(cluster, replicas=3)
    set_version(cluster, "b")
    seen = []

    def done():
        seen.append(tuple(versions(cluster)))
        status_ = status(cluster)
        return (
            status_["currentRevision"] == status_["updateRevision"] and versions(cluster)[0] == "b"
        )

    cluster.until(done)
    whole = [each for each in dict.fromkeys(seen) if len(each) == 3]
    assert whole == [("a", "a", "a"), ("a", "a", "b"), ("a", "b", "b"), ("b", "b", "b")]
    assert (status(cluster)["currentReplicas"], status(cluster)["updatedReplicas"]) == (3, 3)


def test_below_the_partition_nothing_changes(cluster):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    set_up(cluster, replicas=3, updateStrategy=rolling)
    set_version(cluster, "b")
    cluster.until(lambda: versions(cluster) == ["a", "a", "b"])
    cluster.pass_time(30)
    assert versions(cluster) == ["a", "a", "b"]
    assert (status(cluster)["currentReplicas"], status(cluster)["updatedReplicas"]) == (2, 1)

    # not even for a pod that is made anew
    cluster.delete("pods", "demo-0")
    cluster.pass_time(10)
    assert versions(cluster) == ["a", "a", "b"]


def test_two_at_a_time_where_two_may_be_missing(cluster):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    set_up(cluster, replicas=4, updateStrategy=rolling)
    set_version(cluster, "b")
    least = 4

    def done():
        nonlocal least
        staying = [p for p in cluster.list("pods") if "deletionTimestamp" not in p["metadata"]]
        least = min(least, len(staying))
        return versions(cluster) == ["b"] * 4

    cluster.until(done)
    assert least == 2


def test_on_delete_a_template_waits_until_somebody_deletes(cluster):
    set_up(cluster, replicas=2, updateStrategy={"type": "OnDelete"})
    set_version(cluster, "b")
    cluster.pass_time(30)
    assert versions(cluster) == ["a", "a"]
    cluster.delete("pods", "demo-0")
    cluster.pass_time(10)
    assert versions(cluster) == ["b", "a"]


def test_revisions_are_kept_and_one_of_before_counts_as_new(cluster):
    set_up(cluster, replicas=1, revisionHistoryLimit=1)
    first = status(cluster)["updateRevision"]
    for version in ("b", "a", "c", "d"):
        set_version(cluster, version)
        until_updated(cluster, 1)
        if version == "a":
            assert status(cluster)["updateRevision"] == first
    kept = {revision["revision"] for revision in cluster.list("controllerrevisions")}
    assert kept == {4, 5}


def test_ready_for_so_long_it_is_available(cluster):
    cluster.create("statefulsets", stateful_set(replicas=2, minReadySeconds=10))
    cluster.pass_time(5)
    assert (status(cluster)["readyReplicas"], status(cluster)["availableReplicas"]) == (1, 0)
    assert names(cluster) == ["demo-0"]
    cluster.until(lambda: status(cluster)["availableReplicas"] == 2)


def test_deleted_it_takes_its_pods_with_it(cluster):
    set_up(cluster, replicas=2)
    cluster.delete("statefulsets", "demo")
    cluster.pass_time(5)
    assert (names(cluster), cluster.list("controllerrevisions")) == ([], [])


def test_there_are_no_volumes_and_it_says_so(cluster):
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    set_up(cluster, volumeClaimTemplates=claims)
    assert reasons(cluster, "StatefulSet")["NotSimulated"] == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"podManagementPolicy": "Any"}, "must be 'OrderedReady' or 'Parallel'"),
        ({"updateStrategy": {"type": "Recreate"}}, "must be 'RollingUpdate' or 'OnDelete'"),
        ({"replicas": -1}, "must be greater than or equal to 0"),
        ({"ordinals": {"start": -1}}, "must be greater than or equal to 0"),
        (
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "x"}}},
            "a valid percent string",
        ),
        ({"selector": {"matchLabels": {"app": "x"}}}, "does not match template `labels`"),
    ],
)
def test_what_is_refused(cluster, spec, message):
    with pytest.raises(Refused, match=message):
        cluster.create("statefulsets", stateful_set(**spec))


def test_its_service_stays_what_it_is(cluster):
    cluster.create("statefulsets", stateful_set(serviceName="a"))
    with pytest.raises(Refused, match=r"spec\.serviceName.*field is immutable"):
        cluster.patch("statefulsets", "demo", {"spec": {"serviceName": "b"}})
