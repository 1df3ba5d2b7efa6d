"""Objects as other drivers and other versions write them: what holds a device goes on to hold it."""

import copy
import random
from types import SimpleNamespace

import msgspec
import pytest

from plugin.scheduling.objects import Claim, Node, Pod, UnreadableClaim
from plugin.sim.scheduler import listers
from plugin.sim.scheduler.scheduling_cycle import Bind, Unschedulable, schedule_pod
from plugin.sim.scheduler.snapshot import Snapshot
from tests.support.planes import claim, node, parsed, pod, slice_, snapshot

PLACED = pod("p", on="node-1")
ENDED = PLACED | {"status": {"phase": "Failed"}}
WRONG = (None, [], {}, "x", 7, True, [None], [7], {"unknown": 1}, {"x": None})


def lister(*claims):
    objects = {f"default/{one['metadata']['name']}": one for one in claims}
    cache = SimpleNamespace(resource="resourceclaims", objects=objects)
    made = listers.TypedLister(cache, Claim, listers.claim_freed_devices, listers.salvage_claim)
    made.refresh()
    return made


def held():
    """As a driver with a status leaves it."""
    one = claim("held", devices=["gpu-0"], pods=["other"])
    entry = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "conditions": None}
    one["status"]["devices"] = [entry]
    return one


def decide(*claims):
    """For a pod that wants one of the two GPUs of a node."""
    new = pod("p", claims=["mine"])
    values = lister(claim("mine"), *claims).values
    around = snapshot(nodes=[node("node-1")], slices=[slice_("node-1")], pods=[new])
    world = Snapshot(around.nodes, around.pods, values_by_key(values), around.published)
    return schedule_pod(world, *parsed(new))


def values_by_key(values):
    return {value.key: value for value in values.values()}


def given(decision):
    assert isinstance(decision, Bind | Unschedulable)
    claims = decision.claims if isinstance(decision, Bind) else ()
    return [result.device for one in claims for result in one.status.allocation.devices.results]


def test_a_null_is_a_field_that_is_not_there():
    (value,) = lister(held()).values.values()
    assert not isinstance(value, UnreadableClaim)
    assert given(decide(held())) == ["gpu-1"]


@pytest.mark.parametrize("field", ["conditions", "device"])
def test_an_unreadable_status_of_a_driver_frees_no_device(field):
    one = held()
    one["status"]["devices"][0][field] = 7
    (value,) = lister(one).values.values()
    assert isinstance(value, UnreadableClaim)
    assert given(decide(one)) == ["gpu-1"]


def test_where_it_cannot_be_told_what_is_held_nothing_is_given():
    one = held()
    one["status"]["allocation"]["devices"]["results"][0]["device"] = 7
    decision = decide(one)
    assert isinstance(decision, Unschedulable)
    assert "the devices of ResourceClaim default/held cannot be read" in decision.message


def test_nobody_uses_a_claim_that_cannot_be_read():
    one = held()
    one["status"]["reservedFor"] = 7
    new = pod("p", claims=["held"])
    around = snapshot(nodes=[node("node-1")], slices=[slice_("node-1")], pods=[new])
    claims = values_by_key(lister(one).values)
    decision = schedule_pod(
        Snapshot(around.nodes, around.pods, claims, around.published), *parsed(new)
    )
    assert 'resourceclaim "held" cannot be read' in decision.message


def test_that_it_can_be_read_again_helps_those_that_wait():
    one = held()
    one["status"]["reservedFor"] = 7
    made = lister(one)
    made._cache.objects = {"default/held": held()}
    assert made.refresh()


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
    assert listers.claim_freed_devices(typed(before, Claim), typed(after, Claim)) is freed


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
    assert listers.pod_freed_node(typed(before, Pod), typed(after, Pod)) is freed


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
        what: listers.node_changed(typed(old, Node), typed(new, Node))
        for what, (old, new) in changed.items()
    } == {"comes": True, "goes": True, "beats": False, "is labelled": True}


def typed(document, kind):
    return None if document is None else msgspec.convert(document, kind)


def places(value, path=()):
    """Every place below the object."""
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(one, dice):
    """With up to three places of its spec and status wrong, missing or joined by unknown ones.

    Which devices it holds may become unknown, but not others or none: that is a deallocation.
    """
    one = copy.deepcopy(one)
    for _ in range(dice.randint(1, 3)):
        found = [path for path in places(one) if path[0] in ("spec", "status") and len(path) > 1]
        path = dice.choice(found)
        target = one
        for key in path[:-1]:
            target = target[key]
        inside = path[:2] == ("status", "allocation") and len(path) < 7
        wrong = [value for value in WRONG if value] if inside else WRONG
        if isinstance(target, dict) and dice.random() < 0.2:
            target["unknown"] = dice.choice(WRONG)
        else:
            target[path[-1]] = copy.deepcopy(dice.choice(wrong))
    return one


def still_says(one):
    """The devices that can be read in it, as far as anybody can tell."""
    try:
        results = one["status"]["allocation"]["devices"]["results"]
        return [(result["driver"], result["pool"], result["device"]) for result in results]
    except (KeyError, TypeError):
        return None


@pytest.mark.parametrize("seed", range(300))
def test_no_device_is_given_twice_whatever_a_claim_looks_like(seed):
    one = mutated(held(), random.Random(seed))
    if still_says(one) == [("gpu.example.com", "node-1", "gpu-0")]:
        assert "gpu-0" not in given(decide(one)), one
