"""The cluster in the scheduler's caches, and the changes that may help waiting pods."""

from __future__ import annotations

from collections.abc import Iterable

from claimd.kubernetes.allocator import features
from claimd.kubernetes.scheduling.objects import (
    Claim,
    Class,
    DisruptionBudget,
    Namespace,
    Node,
    Pod,
    Rule,
    Slice,
)
from claimd.kubernetes.scheduling.pod_groups import PodGroup

from ..assume_cache import AssumeCache
from ..client import ApiClient
from . import listers
from .listers import TypedLister
from .snapshot import PublishedDevices, Snapshot

RESOURCES = (
    "nodes",
    "pods",
    "resourceclaims",
    "deviceclasses",
    "resourceslices",
    "devicetaintrules",
    "namespaces",
    "podgroups",
    "poddisruptionbudgets",
)


class ClusterCache:
    """All facts of the cluster that decide where a pod runs, as typed objects.

    `refresh` takes over the changes that the caches received since the last call.
    """

    def __init__(self, api: ApiClient) -> None:
        self._caches = {resource: AssumeCache(api, resource) for resource in RESOURCES}
        self._features = features.DEFAULT
        self._published = PublishedDevices()

        self.pods = TypedLister(self._caches["pods"], Pod, self._pod_changed)
        self.claims = TypedLister(
            self._caches["resourceclaims"],
            Claim,
            listers.claim_freed_devices,
            listers.salvage_claim,
        )
        self._nodes = TypedLister(self._caches["nodes"], Node, listers.node_changed)
        self._classes = TypedLister(self._caches["deviceclasses"], Class, listers.spec_changed)
        self._slices = TypedLister(self._caches["resourceslices"], Slice, listers.spec_changed)
        self._rules = TypedLister(self._caches["devicetaintrules"], Rule, listers.spec_changed)
        self._namespaces = TypedLister(
            self._caches["namespaces"], Namespace, listers.labels_changed
        )
        self.groups = TypedLister(self._caches["podgroups"], PodGroup, listers.spec_changed)
        # Budgets never keep a pod from a node, so their changes help no pod.
        self._budgets = TypedLister(
            self._caches["poddisruptionbudgets"], DisruptionBudget, lambda _, __: False
        )

        # A new object after each change that may help an unschedulable pod.
        self.last_help: object = object()
        # The same for new placed pods, which help only pods with affinity to others.
        self.last_neighbour: object = object()

    @property
    def caches(self) -> Iterable[AssumeCache]:
        return self._caches.values()

    def set_release(self, minor: int) -> None:
        """Enables the features that this minor release of Kubernetes enables."""
        self._features = features.release_defaults(minor)

    def refresh(self) -> None:
        """Takes over the caches' objects, and notes whether waiting pods may profit."""
        published = [lister.refresh() for lister in (self._classes, self._slices, self._rules)]
        if any(published):
            self._published = PublishedDevices(
                list(self._slices.values.values()),
                list(self._rules.values.values()),
                list(self._classes.values.values()),
                self._features,
            )

        listers_ = (
            *(self._nodes, self.pods, self.claims, self._namespaces),
            *(self.groups, self._budgets),
        )
        others = [lister.refresh() for lister in listers_]
        if any(published) or any(others):
            self.last_help = object()

    def snapshot(self) -> Snapshot:
        """Returns the cluster as of the last refresh."""
        snapshot = Snapshot.from_objects(
            self._nodes.values.values(),
            self.pods.values.values(),
            self.claims.values.values(),
            self._published,
            {name: item.metadata.labels for name, item in self._namespaces.values.items()},
            list(self._budgets.values.values()),
        )
        return snapshot.with_groups(self.groups.values.values())

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> bool:
        if listers.pod_came_near(before, after):
            self.last_neighbour = object()
        return listers.pod_freed_node(before, after)
