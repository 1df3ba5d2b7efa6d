"""What-if changes to a cluster, and their effect on the answer."""

import json

import pytest

from claimd.common import errors
from claimd.tools.explain import objects, pending, sources, what_if
from tests.support.cluster_objects import (
    claim,
    class_,
    container,
    gpus,
    name,
    node,
    pod,
    slice_,
)


@pytest.fixture(params=["once", "late"])
def load(request, tmp_path):
    """Loads objects one by one, or as a list in JSON, in which slices are decoded late."""

    def read(*documents):
        if request.param == "once":
            known = objects.Objects()
            for document in (class_(), *documents):
                known.add(document)
            return known
        path = tmp_path / "dump.json"
        path.write_text(json.dumps({"kind": "List", "items": [class_(), *documents]}))
        return sources.read_files([path], sources.Scope(name="job"))

    return read


def cluster():
    """Two nodes: a pod has the GPUs and the CPU of one, and the other has GPUs of another pool."""
    wanted = [{"name": "gpu", "resourceClaimName": "train"}]
    yield node("node-1", pool="batch")
    yield node("node-2", pool="web")
    yield from (slice_(gpus(2), node=f"node-{number}") for number in (1, 2))
    yield claim("other", held=[name(0), name(1)], reserved=["busy"])
    yield pod("busy", nodeName="node-1", containers=[container(cpu="60")])
    yield claim(count=2)
    yield pod(
        nodeSelector={"pool": "batch"}, resourceClaims=wanted, containers=[container(cpu="8")]
    )


def outcomes(known, subject=None):
    subject = subject or pending.find_subject(known, "pod/job", "default")
    return {
        node_answer.node: node_answer.outcome
        for node_answer in pending.report(known, subject).nodes
    }


def test_as_it_is(load):
    assert outcomes(load(*cluster())) == {"node-1": "no", "node-2": "no"}


def test_without_a_claim(load):
    known = load(*cluster())
    told = what_if.apply_changes(known, "default", ["claim/other"], [])
    assert told == ["claim default/other were not there"]
    answer = pending.report(known, pending.find_subject(known, "pod/job", "default"))
    assert answer.nodes[0].summary == "cpu: the pod requests 8, 4 of 64 are left"


def test_without_a_pod_what_it_has_is_given_back(load):
    known = load(*cluster())
    told = what_if.apply_changes(known, "default", ["pod/busy"], [])
    assert told == ["pod default/busy were not there, and 1 claim gave devices back"]
    assert outcomes(known) == {"node-1": "yes", "node-2": "no"}


def test_of_another_namespace(load):
    known = load(*cluster())
    told = what_if.apply_changes(known, "elsewhere", ["claim/default/other"], [])
    assert told == ["claim default/other were not there"]


def test_as_if_a_node_were_free(load):
    known = load(*cluster())
    told = what_if.apply_changes(known, "default", [], ["node-1"])
    assert told == ["node node-1 were free (1 pod and the devices of 1 claim leave it)"]
    assert outcomes(known) == {"node-1": "yes", "node-2": "no"}


def test_on_a_node_its_own_choice_does_not_count(load):
    known = load(*cluster())
    subject, told = what_if.pin_to_node(pending.find_subject(known, "pod/job", "default"), "node-2")
    assert told == "it had to run on node node-2, whatever nodes it selects"
    assert outcomes(known, subject)["node-2"] == "yes"
    wanted = pending.find_subject(known, "claim/train", "default")
    assert what_if.pin_to_node(wanted, "node-2")[0] is wanted


@pytest.mark.parametrize(
    ("without", "free", "message"),
    [
        (["claim/none"], [], "--without claim/none: there is no claim default/none"),
        (["pod/none"], [], "--without pod/none: there is no pod default/none"),
        (["other"], [], "--without other: expected claim/NAME or pod/NAME"),
        ([], ["none"], "--as-if-free none: no node 'none' is known"),
    ],
)
def test_what_is_not_there_is_said(load, without, free, message):
    with pytest.raises(errors.Fatal) as failure:
        what_if.apply_changes(load(*cluster()), "default", without, free)
    assert str(failure.value) == message


def test_a_slice_that_cannot_be_read_is_told_as_without_changes(tmp_path):
    broken = slice_(gpus(1), node="node-2")
    broken["spec"]["pool"] = "oops"
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": [*cluster(), class_(), broken]}))
    known = sources.read_files([path])
    what_if.apply_changes(known, "default", [], ["node-1"])
    with pytest.raises(errors.Fatal, match="ResourceSlice .* cannot be read: "):
        outcomes(known)


def test_what_leaves_is_counted(load):
    more = [pod(f"busy-{number}", nodeName="node-1") for number in range(2)]
    shared = claim("shared", held=[name(0)], reserved=["busy", "busy-0"])
    known = load(*cluster(), *more, shared)
    told = what_if.apply_changes(known, "default", ["pod/busy-1"], ["node-1"])
    assert told == [
        "pod default/busy-1 were not there",
        "node node-1 were free (2 pods and the devices of 2 claims leave it)",
    ]

    known = load(*cluster(), *more, claim("second", held=[name(1)], reserved=["busy"]), shared)
    told = what_if.apply_changes(known, "default", ["pod/busy", "resourceclaim/second"], ["node-2"])
    assert told == [
        "pod default/busy were not there, and 2 claims gave devices back",
        "claim default/second were not there",
        "node node-2 were free (0 pods and the devices of 0 claims leave it)",
    ]
    assert [claim_.metadata.name for claim_ in known.claims if claim_.status.allocation] == [
        "shared"
    ]
