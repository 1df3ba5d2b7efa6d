"""Pods that could run, and would be evicted because of an old taint."""

import pytest

from claimd.tools.explain import objects, pending
from tests.support.cluster_objects import claim, class_, gpu, node, pod, slice_

OLD, FUTURE = "2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def line(seconds, added, *more):
    device = gpu(0)
    device["taints"] = [{"key": "a/hot", "effect": "NoExecute", "timeAdded": added}]
    toleration = {"key": "a/hot", "operator": "Exists"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    train = claim(tolerations=[toleration])
    known = objects.Objects()
    job = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}])
    for document in (class_(), node("node-1"), slice_([device]), train, job, *more):
        known.add(document)
    answer = pending.report(known, pending.find_subject(known, "pod/job", "default"))
    assert answer.verdict == "could run"
    return answer.line


def test_an_old_taint_evicts_at_once():
    assert line(300, OLD) == (
        "pod default/job: 1 of 1 nodes could run it, but it would be evicted at once: "
        f"gpu-0000-41-00-0 on node-1 has the taint a/hot since {OLD}, "
        "and the claim tolerates it for 300 s only"
    )


@pytest.mark.parametrize(("seconds", "added"), [(None, OLD), (300, FUTURE), (300, "some time ago")])
def test_others_may_stay(seconds, added):
    assert line(seconds, added) == "pod default/job: 1 of 1 nodes could run it"


def test_a_node_without_the_taint_is_enough():
    others = (node("node-2"), slice_([gpu(1)], node="node-2"))
    assert line(300, OLD, *others) == "pod default/job: 2 of 2 nodes could run it"
