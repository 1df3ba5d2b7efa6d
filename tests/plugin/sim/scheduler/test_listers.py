"""Objects as other drivers and versions write them: an allocated device stays allocated."""

import copy
from types import SimpleNamespace

import msgspec
import pytest

from claimd.kubernetes.scheduling.objects import Claim, Node, Pod, UnreadableClaim
from claimd.sim.scheduler import listers
from claimd.sim.scheduler.scheduling_cycle import Bind, Unschedulable, schedule_pod
from claimd.sim.scheduler.snapshot import Snapshot
from tests.support import mutated_worlds, samples
from tests.support.planes import claim, node, parsed, pod, slice_, snapshot

PLACED = pod("p", on="node-1")
ENDED = PLACED | {"status": {"phase": "Failed"}}


def lister(*claims):
    objects = {f"default/{claim_['metadata']['name']}": claim_ for claim_ in claims}
    cache = SimpleNamespace(resource="resourceclaims", objects=objects)
    lister_ = listers.TypedLister(cache, Claim, listers.claim_freed_devices, listers.salvage_claim)
    lister_.refresh()
    return lister_


def build_held_claim():
    """Builds an allocated claim whose driver has written a device status with null conditions."""
    held_claim = claim("held", devices=["gpu-0"], pods=["other"])
    entry = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "conditions": None}
    held_claim["status"]["devices"] = [entry]
    return held_claim


def decide(*claims):
    """Decides for a pod that requests one of the two GPUs of a node."""
    new = pod("p", claims=["mine"])
    values = lister(claim("mine"), *claims).values
    around = snapshot(nodes=[node("node-1")], slices=[slice_("node-1")], pods=[new])
    world = Snapshot(around.nodes, around.pods, values_by_key(values), around.published)
    return schedule_pod(world, *parsed(new))


def values_by_key(values):
    return {value.key: value for value in values.values()}


def given_devices(decision):
    assert isinstance(decision, Bind | Unschedulable)
    claims = decision.claims if isinstance(decision, Bind) else ()
    return [
        result.device for claim_ in claims for result in claim_.status.allocation.devices.results
    ]


def test_a_null_is_a_field_that_is_not_there():
    (value,) = lister(build_held_claim()).values.values()
    assert not isinstance(value, UnreadableClaim)
    assert given_devices(decide(build_held_claim())) == ["gpu-1"]


@pytest.mark.parametrize("field", ["conditions", "device"])
def test_an_unreadable_status_of_a_driver_frees_no_device(field):
    held_claim = build_held_claim()
    held_claim["status"]["devices"][0][field] = 7
    (value,) = lister(held_claim).values.values()
    assert isinstance(value, UnreadableClaim)
    assert given_devices(decide(held_claim)) == ["gpu-1"]


def test_where_it_cannot_be_told_what_is_held_nothing_is_given():
    held_claim = build_held_claim()
    held_claim["status"]["allocation"]["devices"]["results"][0]["device"] = 7
    decision = decide(held_claim)
    assert isinstance(decision, Unschedulable)
    assert "the devices of ResourceClaim default/held cannot be read" in decision.message


def test_nobody_uses_a_claim_that_cannot_be_read():
    held_claim = build_held_claim()
    held_claim["status"]["reservedFor"] = 7
    new = pod("p", claims=["held"])
    around = snapshot(nodes=[node("node-1")], slices=[slice_("node-1")], pods=[new])
    claims = values_by_key(lister(held_claim).values)
    decision = schedule_pod(
        Snapshot(around.nodes, around.pods, claims, around.published), *parsed(new)
    )
    assert 'resourceclaim "held" cannot be read' in decision.message


def test_that_it_can_be_read_again_helps_those_that_wait():
    held_claim = build_held_claim()
    held_claim["status"]["reservedFor"] = 7
    lister_ = lister(held_claim)
    lister_._cache.objects = {"default/held": build_held_claim()}
    assert lister_.refresh()


@pytest.mark.parametrize(
    ("before", "after", "freed"),
    [
        (None, claim("c"), False),
        (claim("c"), None, False),
        (claim("c"), claim("c", devices=["gpu-0"]), False),
        (claim("c", devices=["gpu-0"]), claim("c", devices=["gpu-0"], pods=["p"]), False),
        (claim("c", devices=["gpu-0"]), claim("c"), True),
        (claim("c", devices=["gpu-0"]), None, True),
    ],
)
def test_a_claim_frees_devices_when_it_goes_or_its_allocation_does(before, after, freed):
    assert listers.claim_freed_devices(convert(before, Claim), convert(after, Claim)) is freed


@pytest.mark.parametrize(
    ("before", "after", "freed"),
    [
        (None, PLACED, False),
        (pod("p"), None, False),
        (pod("p"), PLACED, False),
        (PLACED, PLACED, False),
        (PLACED, ENDED, True),
        (PLACED, None, True),
        (ENDED, None, False),
    ],
)
def test_a_pod_frees_its_node_when_it_goes_or_ends(before, after, freed):
    assert listers.pod_freed_node(convert(before, Pod), convert(after, Pod)) is freed


def test_what_changes_of_a_node_matters_to_those_that_wait_unless_it_is_its_heartbeat():
    before = node("node-1")
    beating = copy.deepcopy(before)
    beating.setdefault("status", {})["conditions"] = [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    ]
    labelled = copy.deepcopy(before)
    labelled["metadata"]["labels"] = {"zone": "a"}
    changed = {
        "comes": (None, before),
        "goes": (before, None),
        "beats": (before, beating),
        "is labelled": (before, labelled),
    }
    assert {
        what: listers.node_changed(convert(old, Node), convert(new, Node))
        for what, (old, new) in changed.items()
    } == {"comes": True, "goes": True, "beats": False, "is labelled": True}


def convert(document, kind):
    return None if document is None else msgspec.convert(document, kind)


def worlds_in_which_a_device_is_given_twice(first, count):
    """Returns the worlds with a double allocation, and the number of allocations in all worlds."""
    given_by_seed = {seed: mutated_worlds.given_twice(seed) for seed in range(first, first + count)}
    return {seed: twice for seed, (twice, _) in given_by_seed.items() if twice}, sum(
        given_devices for _, given_devices in given_by_seed.values()
    )


@pytest.mark.sampled
def test_no_device_is_given_twice_whatever_objects_look_like():
    """`python -m tests.support.mutated_worlds` runs many more."""
    broken, given_devices = worlds_in_which_a_device_is_given_twice(0, samples.share(300))
    assert not broken
    assert given_devices > samples.share(200)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 6000, 1000))
def test_no_device_is_given_twice_in_thousands_of_worlds(first):
    broken, _ = worlds_in_which_a_device_is_given_twice(first, 1000)
    assert not broken


def test_a_world_in_which_a_device_would_be_given_twice_is_seen(monkeypatch):
    """Simulates the old bug: an unreadable claim counted as absent."""
    monkeypatch.setattr(listers, "salvage_claim", lambda *_: None)
    broken, _ = worlds_in_which_a_device_is_given_twice(0, 50)
    assert broken
