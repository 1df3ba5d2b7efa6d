"""The strategy of each kind on a release, and the strategies of core kinds and of v1alpha2."""

from __future__ import annotations

from functools import cache

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import models

from ..types.resource import GroupResource
from . import apps, canonical, classic, core_kinds, dra, gates, jobs, pod_groups, priorities
from .field_errors import FieldErrors
from .profile import Profile
from .strategy import Context, Strategy


class CoreStrategy(Strategy):
    """The strategy of the core group's kinds, such as pods, nodes, namespaces and config maps."""

    @property
    def empty(self) -> Document:
        return core_kinds.EMPTY.get(self.kind, {})

    @property
    def keeps_new_status(self) -> bool:
        """True for nodes, because a kubelet registers its node together with its status."""
        return self.kind == "Node"

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return core_kinds.with_defaults(self.kind, obj)

    def check_admission(self, obj: Document, old: Document | None, context: Context) -> None:
        if self.kind == "Pod" and old is None:
            priorities.check_pod(obj, context.priority_classes())

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        if self.kind == "Pod":
            new = new | {"spec": priorities.resolve_priority(new, context.priority_classes())}
            new = gates.drop_disabled(self.kind, new, None, self.profile)
        return core_kinds.prepare_for_create(self.kind, new)

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        return priorities.keep_priority(new, old) if self.kind == "Pod" else new

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        core_kinds.validate(errors, self.kind, new, old)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        core_kinds.validate_status(errors, self.kind, new)


class JobStrategy(Strategy):
    """The strategy of Jobs."""

    @property
    def default_propagation_policy(self) -> str:
        """The policy "Orphan": a Job leaves its pods behind, as before there was garbage
        collection.
        """
        return "Orphan"

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return jobs.with_defaults(obj)

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        return jobs.with_selector(new)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        jobs.validate(errors, new, old)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        jobs.validate_status(errors, new, old)


class AppsStrategy(Strategy):
    """The strategy of Deployments, ReplicaSets and DaemonSets."""

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return apps.with_defaults(self.kind, obj)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        apps.validate(errors, self.kind, new)


class PriorityClassStrategy(Strategy):
    """The strategy of PriorityClasses."""

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return priorities.with_defaults(obj)

    def check_admission(self, obj: Document, old: Document | None, context: Context) -> None:
        priorities.check_class(obj, context.priority_classes())

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        priorities.validate_class(errors, new, old)


class PodGroupStrategy(Strategy):
    """The strategy of PodGroups."""

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return pod_groups.with_defaults(obj)

    def check_admission(self, obj: Document, old: Document | None, context: Context) -> None:
        if old is None:
            priorities.resolve_group_priority(obj, context.priority_classes())

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        spec = priorities.resolve_group_priority(new, context.priority_classes())
        return pod_groups.with_finalizer(new | {"spec": spec})

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        return priorities.keep_priority(new, old)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        pod_groups.validate(errors, new, old)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        pod_groups.validate_status(errors, new)


class ClassicStrategy(dra.ClassicRules):
    """The strategy of the resource API's kinds in v1alpha2."""

    @property
    def empty(self) -> Document:
        return canonical.round_trip(self.version, self.kind, {}, self.profile.release)

    def with_defaults(self, obj: Document, context: Context) -> Document:
        obj = classic.with_defaults(self.kind, obj)
        return canonical.round_trip(self.version, self.kind, obj, self.profile.release)


@cache
def choose_strategy(resource: GroupResource, version: str, release: str) -> Strategy:
    """Returns the strategy of a kind whose storage version is `version`."""
    strategy = Strategy
    if resource.group == models.GROUP:
        strategy = ClassicStrategy if version == "v1alpha2" else dra.STRATEGIES[resource.kind]
    elif resource.kind == "PriorityClass":
        strategy = PriorityClassStrategy
    elif resource.kind == "PodGroup":
        strategy = PodGroupStrategy
    elif resource.group == "apps":
        strategy = AppsStrategy
    elif resource.kind == "Job":
        strategy = JobStrategy
    elif not resource.group:
        strategy = CoreStrategy
    return strategy(resource, version, Profile(release))
