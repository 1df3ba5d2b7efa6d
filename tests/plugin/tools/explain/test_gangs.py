"""Gangs whose pods fit on a node one by one, but not together."""

from claimd.tools.explain import gangs, objects, pending, survey
from tests.support.cluster_objects import claim, class_, gpus, node, slice_
from tests.support.pod_group_situations import group, member


def answer(*documents):
    known = objects.Objects()
    for document in (class_(), *documents):
        known.add(document)
    return pending.report(known, pending.find_subject(known, "pod/worker-1", "default"))


def with_claims(count):
    """Each worker has a claim for one GPU."""
    documents = []
    for number in range(1, count + 1):
        documents += [
            claim(f"gpu-{number}"),
            member(f"worker-{number}", gpu=f"gpu-{number}"),
        ]
    return documents


def test_a_gang_with_too_few_gpus():
    found = answer(node("node-1"), slice_(gpus(2)), group(gang=3), *with_claims(3))
    assert (found.verdict, found.nodes[0].outcome) == ("pending", "yes")
    assert found.blockers[0].startswith(
        "gang default/training needs 3 pods placed at once, and only 2 of 3 fit: pod worker-3: "
    )


def test_a_gang_that_fits_on_two_nodes():
    nodes = [node("node-1"), node("node-2"), slice_(gpus(1)), slice_(gpus(1), node="node-2")]
    found = answer(*nodes, group(gang=2), *with_claims(2))
    assert found.verdict == "could run"


def test_pods_that_run_already_count():
    running = member("worker-0")
    running["spec"]["nodeName"] = "node-1"
    found = answer(node("node-1"), slice_(gpus(1)), group(gang=3), running, *with_claims(2))
    assert found.blockers[0].startswith(
        "gang default/training needs 2 more pods placed at once, and only 1 of 2 fit: "
    )


def test_more_pods_than_the_gang_needs():
    found = answer(node("node-1"), slice_(gpus(2)), group(gang=2), *with_claims(3))
    assert found.verdict == "could run"


def test_pods_of_a_gang_share_its_claim():
    shared = [member(f"worker-{number}", gpu="train") for number in (1, 2)]
    documents = [group(gang=2, gpu="train"), claim(), *shared]
    assert answer(node("node-1"), slice_(gpus(1)), *documents).verdict == "could run"


def test_cpus_of_the_gang():
    small = node("node-1")
    small["status"]["allocatable"]["cpu"] = "4"
    workers = [member(f"worker-{number}", requests={"cpu": "3"}) for number in (1, 2)]
    found = answer(small, group(gang=2), *workers)
    assert "only 1 of 2 fit: pod worker-2: cpu: " in found.blockers[0]


def test_no_time_for_the_gang(monkeypatch):
    monkeypatch.setattr(gangs, "TIME_LIMIT", 0.0)
    found = answer(node("node-1"), slice_(gpus(2)), group(gang=3), *with_claims(3))
    assert found.verdict == "could run"
    assert found.notes == ("not looked at: whether 3 pods of gang default/training fit together",)


def test_a_gang_that_is_still_to_be_created():
    known = objects.Objects()
    for document in (class_(), node("node-1"), slice_(gpus(2)), group(gang=3), *with_claims(1)):
        known.add(document)
    found = pending.report(known, known.pods[0], new=True)
    assert found.verdict == "could run"
    assert found.notes == ("gang default/training needs 3 pods at once: this is about one of them",)


def test_a_survey_tries_a_gang_once(monkeypatch):
    tries = []
    place = gangs._place
    monkeypatch.setattr(gangs, "_place", lambda *more: tries.append(1) or place(*more))
    known = objects.Objects()
    documents = [node("node-1"), slice_(gpus(2)), group(gang=3), *with_claims(3)]
    for document in (class_(), *documents):
        known.add(document)
    surveyed = survey.survey_pods(known)
    assert len(tries) == 3
    (only,) = surveyed.groups
    assert only.verdict == "pending" and len(only.pods) == 3
