"""Tests of the store: versions, lists of a version, watches, and the window of changes."""

import pytest

from claimd.sim.apiserver.storage import store
from claimd.sim.apiserver.types import status_errors
from claimd.sim.apiserver.types.resource import GroupResource

CLAIMS = GroupResource("resourceclaims", "resource.k8s.io", "ResourceClaim")
PODS = GroupResource("pods", "", "Pod")


def claim(name, namespace="ns", **spec):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def names(page):
    return [obj["metadata"]["name"] for obj in page.items]


def drain(watcher, predicate=None):
    events = [store.watch_event(change, predicate) for change in watcher.pending]
    watcher.pending.clear()
    return [
        (kind, obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"]))
        for kind, obj in filter(None, events)
    ]


@pytest.fixture
def filled():
    kept = store.Store()
    for name in "bdac":
        kept.create(CLAIMS, claim(name))
    return kept


def test_every_write_has_a_greater_version_and_the_same_content_is_no_write(filled):
    first = filled.get(CLAIMS, "ns", "a")
    second = filled.replace(CLAIMS, first, first | {"spec": {"x": 1}})
    assert (
        int(second["metadata"]["resourceVersion"])
        == filled.resource_version
        > int(first["metadata"]["resourceVersion"])
    )
    assert filled.replace(CLAIMS, second, claim("a", x=1)) is second
    assert first["spec"] == {}  # what was read before stays as it was
    last = filled.delete(CLAIMS, second)
    assert int(last["metadata"]["resourceVersion"]) == filled.resource_version
    assert filled.find(CLAIMS, "ns", "a") is None


def test_refusals_read_like_the_api_servers(filled):
    old = filled.get(CLAIMS, "ns", "a")
    filled.replace(CLAIMS, old, claim("a", x=1))
    for action, code, reason, message in (
        (
            lambda: filled.get(CLAIMS, "ns", "z"),
            404,
            "NotFound",
            'resourceclaims.resource.k8s.io "z" not found',
        ),
        (lambda: filled.get(PODS, "ns", "a"), 404, "NotFound", 'pods "a" not found'),
        (
            lambda: filled.create(CLAIMS, claim("a")),
            409,
            "AlreadyExists",
            'resourceclaims.resource.k8s.io "a" already exists',
        ),
        (
            lambda: filled.replace(CLAIMS, old, claim("a", x=2)),
            409,
            "Conflict",
            'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "a": the object has been modified; '
            "please apply your changes to the latest version and try again",
        ),
        (
            lambda: filled.delete(CLAIMS, old),
            404,
            "NotFound",
            'resourceclaims.resource.k8s.io "a" not found',
        ),
    ):
        with pytest.raises(status_errors.StatusError) as caught:
            action()
        assert (caught.value.code, caught.value.reason, str(caught.value)) == (
            code,
            reason,
            message,
        )
        assert caught.value.status["code"] == code
        assert caught.value.status["details"]["name"] in "az"


def test_pages_are_of_one_version_whatever_happens_between_them(filled):
    first = filled.page(CLAIMS, limit=2)
    assert (names(first), first.remaining_item_count) == (["a", "b"], 2)
    filled.delete(CLAIMS, filled.get(CLAIMS, "ns", "c"))
    filled.replace(CLAIMS, filled.get(CLAIMS, "ns", "d"), claim("d", x=1))
    filled.create(CLAIMS, claim("cc"))
    second = filled.page(CLAIMS, limit=2, continue_token=first.continue_token)
    assert (names(second), second.resource_version, second.continue_token) == (
        ["c", "d"],
        first.resource_version,
        "",
    )
    assert second.items[1]["spec"] == {}
    assert names(filled.page(CLAIMS)) == ["a", "b", "cc", "d"]
    assert names(filled.page(CLAIMS, exact=first.resource_version)) == ["a", "b", "c", "d"]


def test_namespaces_and_selections(filled):
    filled.create(CLAIMS, claim("a", namespace="other", x=1))
    assert [obj["metadata"]["namespace"] for obj in filled.page(CLAIMS).items] == ["ns"] * 4 + [
        "other"
    ]
    assert names(filled.page(CLAIMS, "other")) == ["a"]
    page = filled.page(CLAIMS, predicate=lambda obj: obj["metadata"]["name"] in "bd", limit=1)
    assert (names(page), page.remaining_item_count) == (["b"], None)
    rest = filled.page(
        CLAIMS,
        predicate=lambda obj: obj["metadata"]["name"] in "bd",
        limit=1,
        continue_token=page.continue_token,
    )
    assert names(rest) == ["d"]


def test_an_old_token_is_refused_with_one_that_goes_on(filled):
    first = filled.page(CLAIMS, limit=1)
    filled.create(CLAIMS, claim("e"))
    filled.compact()
    with pytest.raises(status_errors.StatusError) as caught:
        filled.page(CLAIMS, limit=1, continue_token=first.continue_token)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    continue_token = caught.value.status["metadata"]["continue"]
    assert names(filled.page(CLAIMS, continue_token=continue_token)) == ["b", "c", "d", "e"]
    with pytest.raises(status_errors.StatusError, match="continue key is not valid"):
        filled.page(CLAIMS, continue_token="nonsense")
    with pytest.raises(status_errors.StatusError, match="too old"):
        filled.page(CLAIMS, exact=first.resource_version)
    with pytest.raises(
        status_errors.StatusError,
        match=f"Too large resource version: 999, current: {filled.resource_version}",
    ):
        filled.page(CLAIMS, exact=999)


def test_a_watch_has_every_change_since_a_version_and_wakes_its_reader(filled):
    woken = []
    since = int(filled.get(CLAIMS, "ns", "a")["metadata"]["resourceVersion"])
    watcher = filled.watch(CLAIMS, lambda: woken.append(1), since)
    assert drain(watcher) == [("ADDED", "c", since + 1)]
    filled.create(PODS, claim("p"))
    filled.replace(CLAIMS, filled.get(CLAIMS, "ns", "a"), claim("a", x=1))
    filled.delete(CLAIMS, filled.get(CLAIMS, "ns", "b"))
    assert len(woken) == 2
    assert drain(watcher) == [("MODIFIED", "a", since + 3), ("DELETED", "b", since + 4)]
    filled.stop(watcher)
    filled.create(CLAIMS, claim("z"))
    assert not watcher.pending


def test_an_object_that_leaves_a_selection_is_deleted_for_it(filled):
    def has_x(obj):
        return "x" in obj["spec"]

    watcher = filled.watch(CLAIMS, lambda: None)
    for spec in ({"x": 1}, {"x": 2}, {}, {"y": 1}):
        filled.replace(CLAIMS, filled.get(CLAIMS, "ns", "a"), claim("a", **spec))
    filled.replace(CLAIMS, filled.get(CLAIMS, "ns", "a"), claim("a", x=3))
    filled.delete(CLAIMS, filled.get(CLAIMS, "ns", "a"))
    assert [kind for kind, _, _ in drain(watcher, has_x)] == [
        "ADDED",
        "MODIFIED",
        "DELETED",
        "ADDED",
        "DELETED",
    ]


def test_behind_the_window_is_410():
    kept = store.Store(window=3)
    for number in range(5):
        kept.create(CLAIMS, claim(f"c{number}"))
    oldest = kept.resource_version - 3
    assert len(kept.watch(CLAIMS, lambda: None, oldest).pending) == 3
    with pytest.raises(status_errors.StatusError) as caught:
        kept.watch(CLAIMS, lambda: None, oldest - 1)
    assert (caught.value.code, str(caught.value)) == (
        410,
        f"too old resource version: {oldest - 1} ({oldest})",
    )
    with pytest.raises(status_errors.StatusError) as caught:
        kept.watch(CLAIMS, lambda: None, kept.resource_version + 1)
    assert caught.value.code == 504


def test_a_list_stays_as_it_was(filled):
    """Checks that later writes do not change a list, and that the next list has them."""
    before = filled.page(CLAIMS)
    first = before.items[0]
    filled.delete(CLAIMS, first)
    changed = filled.replace(CLAIMS, before.items[1], before.items[1] | {"spec": {"changed": 1}})
    assert len(before.items) == len(filled.page(CLAIMS).items) + 1
    assert before.items[0] is first
    assert filled.page(CLAIMS).items[0] is changed
    assert filled.page(CLAIMS) == filled.page(CLAIMS)


def test_lists_are_in_the_order_of_names_however_objects_came():
    filled_anyhow = store.Store()
    names_given = [f"{letter}{number}" for number in range(5) for letter in "cab"]
    for name in names_given:
        filled_anyhow.create(CLAIMS, claim(name, namespace=f"ns-{name[0]}"))
    for name in ("a3", "c0", "b4"):
        found = filled_anyhow.get(CLAIMS, f"ns-{name[0]}", name)
        filled_anyhow.delete(CLAIMS, found)
    left = sorted(set(names_given) - {"a3", "c0", "b4"})
    assert names(filled_anyhow.page(CLAIMS)) == left
    assert names(filled_anyhow.page(CLAIMS, "ns-b")) == [name for name in left if name[0] == "b"]
    assert names(filled_anyhow.page(CLAIMS, "ns")) == [], "which is only how others begin"
