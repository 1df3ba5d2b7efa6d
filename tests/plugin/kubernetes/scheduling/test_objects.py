"""The properties of pods and claims."""

import msgspec

from claimd.kubernetes.scheduling.objects import Claim, Node, Pod


def read(document, kind):
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


def pod(name="job", uid="1", phase="", **spec):
    return read(
        {
            "metadata": {"name": name, "namespace": "team", "uid": uid},
            "spec": spec,
            "status": {"phase": phase},
        },
        Pod,
    )


def claim(owners=(), **status):
    metadata = {"name": "c", "namespace": "team", "uid": "9", "ownerReferences": list(owners)}
    return read({"metadata": metadata, "status": status}, Claim)


def test_objects_are_known_by_namespace_and_name():
    assert pod().key == "team/job"
    assert claim().key == "team/c"


def test_a_pod_has_ended_well_or_not():
    ended = {phase: pod(phase=phase).has_ended for phase in ("Succeeded", "Failed", "Running", "")}
    assert ended == {"Succeeded": True, "Failed": True, "Running": False, "": False}


def test_the_ports_of_the_node_that_stay_open():
    """Init containers that end do not count: their ports are closed when the pod runs."""
    pod_ = pod(
        initContainers=[
            {"name": "ends", "ports": [{"hostPort": 1}]},
            {"name": "stays", "restartPolicy": "Always", "ports": [{"hostPort": 2}]},
        ],
        containers=[
            {"name": "a", "ports": [{"hostPort": 3, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
            {"name": "b", "ports": [{"containerPort": 80}]},
        ],
    )
    assert pod_.host_ports == {(2, "TCP", "0.0.0.0"), (3, "UDP", "10.0.0.1")}
    assert [container.name for container in pod_.all_containers] == ["ends", "stays", "a", "b"]


def test_a_claim_is_reserved_for_the_pod_of_this_uid():
    reserved = claim(reservedFor=[{"resource": "pods", "name": "job", "uid": "1"}])
    assert reserved.is_reserved_for(pod())
    assert not reserved.is_reserved_for(pod(uid="2"))
    assert not claim().is_reserved_for(pod())


def test_a_reservation_comes_after_those_that_there_are():
    first = claim().with_reservation(pod().as_consumer)
    both = first.with_reservation(pod("other", uid="2").as_consumer)
    assert [
        (consumer.resource, consumer.name, consumer.uid) for consumer in both.status.reserved_for
    ] == [
        ("pods", "job", "1"),
        ("pods", "other", "2"),
    ]
    assert len(first.status.reserved_for) == 1


def test_a_claim_belongs_to_the_pod_that_controls_it():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": "1"}
    assert claim([owner | {"controller": True}]).is_owned_by(pod())
    assert not claim([owner]).is_owned_by(pod())
    assert not claim([owner | {"controller": True}]).is_owned_by(pod(uid="2"))


def test_a_claim_of_a_group_is_for_its_pods():
    in_group = pod(schedulingGroup={"podGroupName": "training"})
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "training"}
    reserved = claim(reservedFor=[group | {"uid": "3"}])
    assert reserved.is_reserved_for(in_group)
    assert not reserved.is_reserved_for(pod())

    owner = {"kind": "PodGroup", "name": "training", "uid": "3", "controller": True}
    owned = claim([owner | {"apiVersion": "scheduling.k8s.io/v1beta1"}])
    assert owned.owning_group == "training" and owned.is_made_for(in_group)
    assert not owned.is_made_for(pod()) and not owned.is_owned_by(in_group)
    assert not claim([owner | {"apiVersion": "example.com/v1"}]).is_made_for(in_group)


def test_the_readiness_of_a_node():
    other = {"type": "DiskPressure", "status": "False"}
    for conditions, expected in (
        ([], "True"),
        ([other], "True"),
        ([other, {"type": "Ready", "status": "Unknown"}], "Unknown"),
        ([{"type": "Ready", "status": "False"}, other], "False"),
    ):
        node = {"metadata": {"name": "n"}, "status": {"conditions": conditions}}
        assert read(node, Node).readiness == expected
