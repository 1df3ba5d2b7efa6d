"""The scheduler's view of the cluster: its objects, and which changes may help waiting pods."""

import pytest

from claimd.kubernetes.allocator import features
from claimd.sim.assume_cache import object_key
from claimd.sim.client import ApiClient
from claimd.sim.scheduler.cluster_cache import RESOURCES, ClusterCache
from tests.support import planes


class Cluster:
    """A cluster cache whose objects the test sets."""

    def __init__(self):
        self.cache = ClusterCache(ApiClient(None))
        self.caches = {cache.resource: cache for cache in self.cache.caches}

    def refresh(self, **collections):
        """Sets the objects. Returns whether that may help any pod, and pods with affinity."""
        for resource, objects in collections.items():
            self.caches[resource].objects = {object_key(obj): obj for obj in objects}
        help_before, neighbour_before = self.cache.last_help, self.cache.last_neighbour
        self.cache.refresh()
        return (
            self.cache.last_help is not help_before,
            self.cache.last_neighbour is not neighbour_before,
        )


@pytest.fixture
def cluster():
    return Cluster()


def test_it_has_a_cache_for_each_resource_that_decides(cluster):
    assert set(cluster.caches) == set(RESOURCES)


def test_the_snapshot_has_what_the_last_refresh_took_over(cluster):
    cluster.refresh(nodes=[planes.node("node-1")], pods=[planes.pod("p")])
    snapshot = cluster.cache.snapshot()
    assert [node.metadata.name for node in snapshot.nodes] == ["node-1"]
    assert [pod.metadata.name for pod in snapshot.pending_pods()] == ["p"]

    cluster.caches["nodes"].objects = {}
    assert cluster.cache.snapshot().nodes == snapshot.nodes
    cluster.refresh()
    assert cluster.cache.snapshot().nodes == []


def test_a_new_node_and_new_devices_help(cluster):
    assert cluster.refresh(nodes=[planes.node("node-1")]) == (True, False)
    assert cluster.refresh() == (False, False)
    assert cluster.refresh(resourceslices=[planes.slice_("node-1", 1)]) == (True, False)
    assert len(cluster.cache.snapshot().published.slices) == 1


def test_a_placed_pod_helps_only_pods_with_affinity(cluster):
    assert cluster.refresh(pods=[planes.pod("p")]) == (False, False)
    assert cluster.refresh(pods=[planes.pod("p", on="node-1")]) == (False, True)


def test_a_freed_node_helps(cluster):
    cluster.refresh(pods=[planes.pod("p", on="node-1")])
    assert cluster.refresh(pods=[]) == (True, False)


def test_the_release_decides_the_features_of_published_devices(cluster):
    cluster.cache.set_release(34)
    cluster.refresh(resourceslices=[planes.slice_("node-1", 1)])
    assert cluster.cache.snapshot().published.of_itself == features.release_defaults(34)
    assert features.release_defaults(34) != features.DEFAULT
