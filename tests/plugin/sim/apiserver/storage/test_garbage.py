"""Tests of garbage collection by owner references."""

import pytest

from claimd.sim.apiserver.storage import garbage
from claimd.sim.apiserver.types.options import DeleteOptions
from claimd.sim.apiserver.types.status_errors import StatusError
from tests.support import registries
from tests.support.registries import CLAIMS, ME, PODS, patch, pod


@pytest.fixture
def registry():
    return registries.new()


def with_owners(name, *uids, block=False):
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "blockOwnerDeletion": block}
        for uid in uids
    ]
    return {"metadata": {"name": name, "ownerReferences": owners}}


@pytest.fixture
def family(registry):
    """Returns a pod with two claims. Another pod owns one of them, too."""
    registry.create(PODS, "ns", pod("p"), ME)
    registry.create(PODS, "ns", pod("q"), ME)
    registry.create(CLAIMS, "ns", with_owners("one", "uid-1", block=True), ME)
    registry.create(CLAIMS, "ns", with_owners("two", "uid-1", "uid-2"), ME)
    return registry


def settle(registry):
    looks = 0
    while garbage.collect(registry, [PODS, CLAIMS]):
        looks += 1
        assert looks < 10
    pods, claims = (registry.store.page(kind.resource).items for kind in (PODS, CLAIMS))
    return [obj["metadata"]["name"] for obj in (*pods, *claims)]


def test_what_nobody_owns_any_more_goes(family):
    assert settle(family) == ["p", "q", "one", "two"]
    family.delete(PODS, "ns", "p", DeleteOptions())
    assert settle(family) == ["q", "two"]
    family.delete(PODS, "ns", "q", DeleteOptions())
    assert settle(family) == []


def test_orphans_are_set_free(family):
    family.delete(PODS, "ns", "p", DeleteOptions(propagation_policy="Orphan"))
    assert settle(family) == ["q", "one", "two"]
    assert "ownerReferences" not in family.store.get(CLAIMS.resource, "ns", "one")["metadata"]


def test_two_owners_let_an_orphan_go_at_once(family):
    for name in "pq":
        family.delete(PODS, "ns", name, DeleteOptions(propagation_policy="Orphan"))
    assert settle(family) == ["one", "two"]
    assert "ownerReferences" not in family.store.get(CLAIMS.resource, "ns", "two")["metadata"]


def test_in_the_foreground_the_owner_goes_last(family):
    family.update(CLAIMS, "ns", "one", with_owners("one", "uid-1", block=True) | {"spec": {}}, ME)
    held = family.store.get(CLAIMS.resource, "ns", "one")
    family.update(
        CLAIMS, "ns", "one", held | {"metadata": held["metadata"] | {"finalizers": ["x/a"]}}, ME
    )
    family.delete(PODS, "ns", "p", DeleteOptions(propagation_policy="Foreground"))
    assert settle(family) == ["p", "q", "one", "two"]
    waiting = family.store.get(CLAIMS.resource, "ns", "one")["metadata"]
    assert "deletionTimestamp" in waiting
    patch(
        family,
        CLAIMS,
        "one",
        "json",
        [{"op": "remove", "path": "/metadata/finalizers/0"}],
        ME,
    )
    assert settle(family) == ["q", "two"]


def test_one_that_does_not_block_is_not_waited_for(family):
    family.delete(PODS, "ns", "q", DeleteOptions(propagation_policy="Foreground"))
    assert settle(family) == ["p", "one", "two"]


def test_a_dependent_of_who_waits_waits_for_its_own(family):
    """Checks that a dependent of a foreground deletion is deleted in the foreground, too."""
    family.delete(PODS, "ns", "p", DeleteOptions(propagation_policy="Foreground"))
    assert garbage.collect(family, [PODS, CLAIMS])
    metadata = family.store.get(CLAIMS.resource, "ns", "one")["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    two = family.store.get(CLAIMS.resource, "ns", "two")["metadata"]
    assert "deletionTimestamp" not in two
    assert settle(family) == ["q", "two"]


def test_nothing_to_do_is_said(family):
    assert garbage.collect(family, [PODS, CLAIMS]) == 0
    family.delete(PODS, "ns", "p", DeleteOptions())
    assert garbage.collect(family, [PODS, CLAIMS]) == 1


def test_another_object_of_the_name_is_no_owner(family):
    family.delete(PODS, "ns", "p", DeleteOptions())
    family.create(PODS, "ns", pod("p"), ME)
    assert settle(family) == ["p", "q", "two"]


def test_what_changed_since_the_pass_began_is_for_the_next(family):
    """Checks that an object which has changed during the pass counts as done.

    Other errors are raised.
    """
    family.delete(PODS, "ns", "p", DeleteOptions())
    real = family.delete
    for code, done in ((404, 1), (409, 1)):
        family.delete = lambda *_, code=code: refuse(code)
        assert garbage.collect(family, [PODS, CLAIMS]) == done
    family.delete = lambda *_: refuse(500)
    with pytest.raises(StatusError):
        garbage.collect(family, [PODS, CLAIMS])
    family.delete = real
    assert settle(family) == ["q", "two"]


def refuse(code):
    raise StatusError(code, "Reason", "message")
