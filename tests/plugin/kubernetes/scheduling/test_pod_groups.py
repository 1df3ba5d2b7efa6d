"""The pods of a PodGroup that a scheduler counts, and the group's claims."""

from claimd.kubernetes.scheduling import pod_groups
from claimd.kubernetes.scheduling.objects import Pod
from claimd.kubernetes.scheduling.pod_groups import PodGroup
from tests.support.allocating import read
from tests.support.pod_group_situations import group, member, with_gate


def test_the_size_of_a_gang():
    assert read(group(gang=4), PodGroup).min_count == 4
    assert read(group(), PodGroup).min_count == 0


def test_a_claim_is_the_groups_if_it_has_the_same_entry():
    shared = read(group(gpu="=one-gpu"), PodGroup)
    (same,) = read(member("a", gpu="=one-gpu"), Pod).spec.resource_claims
    (other_name,) = read(member("a", own="=one-gpu"), Pod).spec.resource_claims
    (other_source,) = read(member("a", gpu="one-gpu"), Pod).spec.resource_claims
    assert shared.has_claim(same)
    assert not shared.has_claim(other_name) and not shared.has_claim(other_source)


def test_members():
    running, ended = member("running"), member("ended")
    running["spec"]["nodeName"] = ended["spec"]["nodeName"] = "node-1"
    ended["status"] = {"phase": "Succeeded"}
    foreign = member("foreign")
    foreign["spec"]["schedulerName"] = "other"
    documents = [
        member("b"),
        member("a"),
        with_gate(member("gated")),
        member("elsewhere", of="other"),
        *(running, ended, foreign),
    ]
    members = pod_groups.find_members(read(documents, list[Pod]), "default", "training")
    assert [pod.metadata.name for pod in members.placed] == ["running"]
    assert [pod.metadata.name for pod in members.waiting] == ["b", "a", "gated"]
    assert [pod.metadata.name for pod in members.ready] == ["a", "b"]
    assert members.count == 4


def test_the_reservation_of_a_group():
    document = group()
    document["metadata"]["uid"] = "u"
    consumer = read(document, PodGroup).as_consumer
    assert consumer.is_group and not consumer.is_pod
    assert (consumer.name, consumer.uid) == ("training", "u")
