"""Tests of the store: versions, lists of a version, watches, and the window of changes."""

import base64

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
def full_store():
    kept = store.Store()
    for name in "bdac":
        kept.create(CLAIMS, claim(name))
    return kept


def test_every_write_has_a_greater_version_and_the_same_content_is_no_write(full_store):
    first = full_store.get(CLAIMS, "ns", "a")
    second = full_store.replace(CLAIMS, first, first | {"spec": {"x": 1}})
    assert (
        int(second["metadata"]["resourceVersion"])
        == full_store.resource_version
        > int(first["metadata"]["resourceVersion"])
    )
    assert full_store.replace(CLAIMS, second, claim("a", x=1)) is second
    assert first["spec"] == {}  # what was read before stays as it was
    last = full_store.delete(CLAIMS, second)
    assert int(last["metadata"]["resourceVersion"]) == full_store.resource_version
    assert full_store.find(CLAIMS, "ns", "a") is None


def test_refusals_read_like_the_api_servers(full_store):
    old = full_store.get(CLAIMS, "ns", "a")
    full_store.replace(CLAIMS, old, claim("a", x=1))
    for action, code, reason, message in (
        (
            lambda: full_store.get(CLAIMS, "ns", "z"),
            404,
            "NotFound",
            'resourceclaims.resource.k8s.io "z" not found',
        ),
        (lambda: full_store.get(PODS, "ns", "a"), 404, "NotFound", 'pods "a" not found'),
        (
            lambda: full_store.create(CLAIMS, claim("a")),
            409,
            "AlreadyExists",
            'resourceclaims.resource.k8s.io "a" already exists',
        ),
        (
            lambda: full_store.replace(CLAIMS, old, claim("a", x=2)),
            409,
            "Conflict",
            'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "a": the object has been modified; '
            "please apply your changes to the latest version and try again",
        ),
        (
            lambda: full_store.delete(CLAIMS, old),
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


def test_pages_are_of_one_version_whatever_happens_between_them(full_store):
    first = full_store.page(CLAIMS, limit=2)
    assert (names(first), first.remaining_item_count) == (["a", "b"], 2)
    full_store.delete(CLAIMS, full_store.get(CLAIMS, "ns", "c"))
    full_store.replace(CLAIMS, full_store.get(CLAIMS, "ns", "d"), claim("d", x=1))
    full_store.create(CLAIMS, claim("cc"))
    second = full_store.page(CLAIMS, limit=2, continue_token=first.continue_token)
    assert (names(second), second.resource_version, second.continue_token) == (
        ["c", "d"],
        first.resource_version,
        "",
    )
    assert second.items[1]["spec"] == {}
    assert names(full_store.page(CLAIMS)) == ["a", "b", "cc", "d"]
    assert names(full_store.page(CLAIMS, exact=first.resource_version)) == ["a", "b", "c", "d"]


def test_namespaces_and_selections(full_store):
    full_store.create(CLAIMS, claim("a", namespace="other", x=1))
    assert [obj["metadata"]["namespace"] for obj in full_store.page(CLAIMS).items] == ["ns"] * 4 + [
        "other"
    ]
    assert names(full_store.page(CLAIMS, "other")) == ["a"]
    page = full_store.page(CLAIMS, predicate=lambda obj: obj["metadata"]["name"] in "bd", limit=1)
    assert (names(page), page.remaining_item_count) == (["b"], None)
    rest = full_store.page(
        CLAIMS,
        predicate=lambda obj: obj["metadata"]["name"] in "bd",
        limit=1,
        continue_token=page.continue_token,
    )
    assert names(rest) == ["d"]


def test_an_old_token_is_refused_with_one_that_goes_on(full_store):
    first = full_store.page(CLAIMS, limit=1)
    full_store.create(CLAIMS, claim("e"))
    full_store.compact()
    with pytest.raises(status_errors.StatusError) as caught:
        full_store.page(CLAIMS, limit=1, continue_token=first.continue_token)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    continue_token = caught.value.status["metadata"]["continue"]
    assert names(full_store.page(CLAIMS, continue_token=continue_token)) == ["b", "c", "d", "e"]
    with pytest.raises(status_errors.StatusError, match="continue key is not valid"):
        full_store.page(CLAIMS, continue_token="nonsense")
    for text in ('[1e400, "a", "b"]', "[" * 100_000, "{}", '[null, "a", "b"]', '["x", "a", "b"]'):
        token = base64.urlsafe_b64encode(text.encode()).decode()
        with pytest.raises(status_errors.StatusError, match="continue key is not valid"):
            full_store.page(CLAIMS, continue_token=token)
    with pytest.raises(status_errors.StatusError, match="too old"):
        full_store.page(CLAIMS, exact=first.resource_version)
    with pytest.raises(
        status_errors.StatusError,
        match=f"Too large resource version: 999, current: {full_store.resource_version}",
    ):
        full_store.page(CLAIMS, exact=999)


def test_a_watch_has_every_change_since_a_version_and_wakes_its_reader(full_store):
    woken = []
    since = int(full_store.get(CLAIMS, "ns", "a")["metadata"]["resourceVersion"])
    watcher = full_store.watch(CLAIMS, lambda: woken.append(1), since)
    assert drain(watcher) == [("ADDED", "c", since + 1)]
    full_store.create(PODS, claim("p"))
    full_store.replace(CLAIMS, full_store.get(CLAIMS, "ns", "a"), claim("a", x=1))
    full_store.delete(CLAIMS, full_store.get(CLAIMS, "ns", "b"))
    assert len(woken) == 2
    assert drain(watcher) == [("MODIFIED", "a", since + 3), ("DELETED", "b", since + 4)]
    full_store.stop(watcher)
    full_store.create(CLAIMS, claim("z"))
    assert not watcher.pending


def test_an_object_that_leaves_a_selection_is_deleted_for_it(full_store):
    def has_x(obj):
        return "x" in obj["spec"]

    watcher = full_store.watch(CLAIMS, lambda: None)
    for spec in ({"x": 1}, {"x": 2}, {}, {"y": 1}):
        full_store.replace(CLAIMS, full_store.get(CLAIMS, "ns", "a"), claim("a", **spec))
    full_store.replace(CLAIMS, full_store.get(CLAIMS, "ns", "a"), claim("a", x=3))
    full_store.delete(CLAIMS, full_store.get(CLAIMS, "ns", "a"))
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


def test_a_list_stays_as_it_was(full_store):
    """Checks that later writes do not change a list, and that the next list has them."""
    before = full_store.page(CLAIMS)
    first = before.items[0]
    full_store.delete(CLAIMS, first)
    changed = full_store.replace(
        CLAIMS, before.items[1], before.items[1] | {"spec": {"changed": 1}}
    )
    assert len(before.items) == len(full_store.page(CLAIMS).items) + 1
    assert before.items[0] is first
    assert full_store.page(CLAIMS).items[0] is changed
    assert full_store.page(CLAIMS) == full_store.page(CLAIMS)


def test_lists_are_in_the_order_of_names_however_objects_came():
    filled_anyhow = store.Store()
    names_given = [f"{letter}{number}" for number in range(5) for letter in "cab"]
    for name in names_given:
        filled_anyhow.create(CLAIMS, claim(name, namespace=f"ns-{name[0]}"))
    for name in ("a3", "c0", "b4"):
        object_ = filled_anyhow.get(CLAIMS, f"ns-{name[0]}", name)
        filled_anyhow.delete(CLAIMS, object_)
    left = sorted(set(names_given) - {"a3", "c0", "b4"})
    assert names(filled_anyhow.page(CLAIMS)) == left
    assert names(filled_anyhow.page(CLAIMS, "ns-b")) == [name for name in left if name[0] == "b"]
    assert names(filled_anyhow.page(CLAIMS, "ns")) == [], "which is only how others begin"
