import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.dynamic_client import DynamicClient, UnknownKindError


@pytest.fixture
def kinds(api):
    return DynamicClient(api.http)


@pytest.mark.parametrize("word", ["pod", "pods", "po", "Pod", "PODS"])
async def test_a_kind_by_whatever_people_call_it(kinds, word):
    kind = await kinds.kind_named(word)
    assert (kind.base_path, kind.resource, kind.kind, kind.namespaced) == (
        "/api/v1",
        "pods",
        "Pod",
        True,
    )


async def test_the_preferred_version_of_a_kind_is_taken(kinds):
    assert (await kinds.kind_named("resourceclaim")).base_path == "/apis/resource.k8s.io/v1"


async def test_a_word_that_is_nearly_one(kinds):
    with pytest.raises(UnknownKindError, match=r"no kind 'podz' is served; did you mean pods?"):
        await kinds.kind_named("podz")
    with pytest.raises(UnknownKindError, match=r"no kind 'xyzzy' is served$"):
        await kinds.kind_named("xyzzy")


async def test_paths(kinds):
    pods, nodes = await kinds.kind_named("pod"), await kinds.kind_named("node")
    assert pods.path("") == "/api/v1/pods"
    assert pods.path("a/b", "c d") == "/api/v1/namespaces/a%2Fb/pods/c%20d"
    assert nodes.path("default", "n") == "/api/v1/nodes/n"


async def test_a_kind_that_is_defined_later(kinds):
    widget = {"apiVersion": "toys.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    with pytest.raises(UnknownKindError, match="no Widget of toys"):
        await kinds.apply(widget)
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toys.example.com"},
        "spec": {
            "group": "toys.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version | {"schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    await kinds.apply(definition)
    assert (await kinds.apply(widget))["metadata"]["generation"] == 1


async def test_objects_are_made_changed_and_deleted(kinds):
    written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    await kinds.apply(written | {"data": {"a": "1"}})
    changed = await kinds.apply(written | {"data": {"b": "2"}})
    assert changed["data"] == {"a": "1", "b": "2"}
    kind = await kinds.kind_of(written)
    assert (await kinds.get(kind, "default", "c"))["data"] == changed["data"]
    await kinds.delete(kind, "default", "c")
    with pytest.raises(errors.NotFound):
        await kinds.get(kind, "default", "c")


@pytest.mark.parametrize("obj", [{"apiVersion": "x/v1", "kind": "Pod"}, {"kind": "Pod"}, {}])
async def test_an_object_of_a_kind_that_is_not_served(kinds, obj):
    with pytest.raises(UnknownKindError, match="the API server has no"):
        await kinds.kind_of(obj)
