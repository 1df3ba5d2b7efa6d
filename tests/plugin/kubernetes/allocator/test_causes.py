"""Tests of the sentences about shortages and remedies."""

import pytest

from claimd.kubernetes.allocator import causes
from claimd.kubernetes.allocator.causes import Change, Count, Holder, Remedy, Shortage
from claimd.kubernetes.allocator.identity import DeviceID


def device(name):
    return DeviceID("gpu.example.com", "node-1", name)


def holder(name, *claims):
    return Holder(device=device(name), claims=claims)


NICS = Count(
    noun="NICs",
    needed=8,
    there=8,
    suitable=8,
    free=7,
    scope="under the roots of the GPUs",
    holders=(holder("nic-0", "default/h0"),),
    namespace="default",
)


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (
            NICS,
            "8 NICs under the roots of the GPUs are needed, 7 are free: nic-0 is held by claim h0",
        ),
        (
            Count(noun="GPUs", needed=2, there=1, suitable=1, free=1),
            "2 GPUs are needed, only 1 exists",
        ),
        (
            Count(noun="GPUs", needed=2, there=1, suitable=1, free=1, nowhere="no node has 2"),
            "2 GPUs are needed, no node has 2",
        ),
        (
            Count(noun="devices of class x", needed=1, there=4, suitable=0, free=0, obstacle="hot"),
            "1 device of class x is needed, 0 of 4 suit; hot",
        ),
        (
            Count(noun="GPUs", needed=2, there=2, suitable=2, free=1, obstacle="gpu-1: taint a"),
            "2 GPUs are needed, 1 of 2 is usable; gpu-1: taint a",
        ),
        (
            Count(noun="NICs", needed=1, there=0, suitable=0, free=0, obstacle="none on any node"),
            "1 NIC is needed, none exists: none on any node",
        ),
        (
            Count(
                noun="GPUs",
                needed=3,
                there=9,
                suitable=8,
                free=2,
                holders=tuple(holder(f"gpu-{n}", f"team/job-{n % 2}") for n in range(6)),
                namespace="default",
            ),
            "3 GPUs are needed, 2 are free: gpu-0, gpu-1, gpu-2, gpu-3 and 2 more "
            "are held by claims team/job-0 and team/job-1",
        ),
    ],
)
def test_counts(count, sentence):
    assert str(count) == sentence
    assert str(Shortage(counts=(count, NICS))) == sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            Change(
                kind="free",
                count=1,
                holders=(holder("gpu-0", "a"), holder("gpu-1", "b")),
            ),
            "free 1 of gpu-0 and gpu-1 (claims a and b)",
        ),
        (
            Change(kind="tolerate", subject="hot:NoSchedule", request="gpus"),
            "tolerate hot:NoSchedule in request gpus",
        ),
        (Change(kind="count", count=3, request="gpus"), "ask for 3 in request gpus"),
        (
            Change(kind="capacity", subject="memory=24Gi", request="gpus"),
            "ask for memory=24Gi in request gpus",
        ),
        (Change(kind="request", request="nic"), "leave out request nic"),
        (
            Change(kind="constraint", subject="matchAttribute pcieRoot"),
            "leave out matchAttribute pcieRoot",
        ),
    ],
)
def test_changes(change, sentence):
    assert str(change) == sentence
    assert str(Remedy(changes=(change, change))) == f"{sentence} and {sentence}"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("a", "a"),
        ("ab", "a and b"),
        ("abcd", "a, b, c and d"),
        ("abcde", "a, b, c, d and 1 more"),
        ("abcdefg", "a, b, c, d and 3 more"),
    ],
)
def test_names_in_a_sentence(names, text):
    assert causes.join_names(list(names)) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "GPUs", "0 GPUs"),
        (1, "GPUs", "1 GPU"),
        (2, "GPUs", "2 GPUs"),
        (1, "devices of class x", "1 device of class x"),
        (1, "different values of uuids", "1 different values of uuids"),
    ],
)
def test_a_number_of_things(count, noun, text):
    assert causes.count_noun(count, noun) == text


def test_the_sentence_about_holders():
    two = (holder("a", "default/x", "other/y"), holder("b", "default/x"), holder("a", "default/z"))
    assert causes.describe_holders(two, "default") == "a and b are held by claims x, other/y and z"
    assert causes.describe_holders(two[1:2]) == "b is held by claim default/x"
    assert causes.describe_holders((holder("b"),)) == "b is held by a claim that is not known"
    assert causes.claim_of_request("default/x: gpus") == "default/x"


def test_nothing_short():
    assert str(causes.NOTHING_SHORT) == ""
    assert causes.NOTHING_SHORT.finished
    count = Count(noun="GPUs", needed=2, there=4, suitable=4, free=1)
    assert str(Shortage(counts=(count,))) == str(count)
