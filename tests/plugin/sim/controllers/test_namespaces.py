"""The deletion of a namespace: its content goes first, then the finalizer."""

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.controllers import namespaces
from claimd.sim.requests import Request, delete
from tests.support import planes
from tests.support.plane import create


def namespace(*finalizers, deleted=True):
    metadata = {"name": "team", "uid": "u", "resourceVersion": "1"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"finalizers": list(finalizers)}}


def test_those_whose_content_is_to_be_deleted():
    held = namespace("other", "kubernetes")
    those = {
        "a": held,
        "b": namespace("kubernetes", deleted=False),
        "c": namespace("other"),
        "d": {"metadata": held["metadata"]},
    }
    assert list(namespaces.terminating(those)) == [held]


def test_only_our_finalizer_is_taken_away():
    request = namespaces.finalize(namespace("a", "kubernetes", "b"))
    assert (request.method, request.target) == ("PUT", "namespaces/team/finalize")
    assert request.body["spec"] == {"finalizers": ["a", "b"]}
    assert request.body["metadata"]["name"] == "team"
    bare = {"metadata": {"name": "team"}}
    assert namespaces.finalize(bare).body["spec"] == {"finalizers": []}


async def test_what_can_be_emptied(api):
    paths = await namespaces.deletable_collections(api)
    assert "/api/v1/namespaces/{}/pods" in paths
    assert "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims" in paths
    assert "/apis/apps/v1/namespaces/{}/deployments" in paths
    # Neither what is of the whole cluster, nor what cannot be listed, nor an older version.
    for absent in ("nodes", "resourceslices", "bindings", "pods/status"):
        assert not [path for path in paths if path.endswith(f"/{absent}")]
    assert not [path for path in paths if "v1beta" in path]
    assert len(paths) == len(set(paths))


async def test_everything_in_it_goes_and_nothing_else(api):
    body = {"metadata": {"name": "team"}}
    team = await api.send(Request(method="POST", resource="namespaces", body=body))
    for obj in (planes.claim("a", namespace="team"), planes.pod("p")):
        await api.send(create(obj))
    held = create(planes.claim("held", namespace="team", finalizers=["example.com/hold"]))
    await api.send(held)

    # The content of a namespace that is not deleted comes back: its default account is made again.
    await api.send(delete("namespaces", team))
    paths = await namespaces.deletable_collections(api)
    assert await namespaces.delete_content(api, paths, "team") is False
    assert await api.find("resourceclaims", "team", "a") is None
    waiting = await api.find("resourceclaims", "team", "held")
    assert waiting["metadata"]["deletionTimestamp"]
    assert await api.find("pods", "default", "p")

    waiting["metadata"].pop("finalizers")
    request = Request(
        method="PUT", resource="resourceclaims", namespace="team", name="held", body=waiting
    )
    await api.send(request)
    assert await namespaces.delete_content(api, paths, "team") is True

    leaving = await api.find("namespaces", "", "team")
    await api.send(namespaces.finalize(leaving))
    assert await api.find("namespaces", "", "team") is None
    with pytest.raises(errors.NotFound):
        await api.send(create(planes.claim("late", namespace="team")))
