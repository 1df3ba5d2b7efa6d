"""What the registry asks of a kind: its defaults, what a write has to go through, what is wrong.

The steps have the names that they have in a real server's registry. This is the strategy of a kind
without rules of its own; those of others are in `strategies` and `dra`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import models

from ..types.resource import RBAC_GROUP, GroupResource
from ..types.status_errors import Cause
from . import formats, metadata
from .field_errors import FieldErrors
from .profile import Profile

# Kinds whose updates old servers validated twice, and said everything twice.
VALIDATED_TWICE = ("DeviceClass", "ResourceClass", "PodSchedulingContext")

# Kinds that can only be replaced by who says which version of the object he has seen.
RESOURCE_VERSION_REQUIRED = (
    "Lease",
    "ResourcePoolStatusRequest",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@dataclass(frozen=True)
class Context:
    """What a strategy may look at besides the object."""

    now: str
    version: str  # that the request is in
    namespace: Callable[[str], Document | None]
    priority_classes: Callable[[], Sequence[Document]] = tuple


class Strategy:
    """Of one kind on one release. Pure: objects that are given are never changed."""

    def __init__(self, resource: GroupResource, version: str, profile: Profile) -> None:
        self.kind, self.group, self.profile = resource.kind, resource.group, profile
        is_first_v1alpha3 = version == "v1alpha3" and profile.is_flat
        self.version = f"{version}-1.31" if is_first_v1alpha3 else version

    @property
    def empty(self) -> Document:
        """An object of which nobody has said anything: what is in it is nobody's."""
        return {}

    @property
    def status_takes_metadata(self) -> bool:
        """Whether who writes the status comes to own what he says of labels and the like."""
        return self.group == models.GROUP and not self.profile.has_declarative_validation

    @property
    def keeps_new_status(self) -> bool:
        """Whether an object may be created with a status."""
        return False

    @property
    def default_propagation_policy(self) -> str:
        """What a deletion does with dependents where whoever deletes says nothing of them."""
        return ""

    @property
    def deletion_finalizers(self) -> tuple[str, ...]:
        """What has to be done for every object of the kind before it goes."""
        return ()

    # ------------------------------------------------------------ steps of a write, in their order

    def check_admission(self, obj: Document, old: Document | None, context: Context) -> None:
        """Raises the StatusError with which an admission plugin refuses the object as it came."""

    def with_defaults(self, obj: Document, context: Context) -> Document:
        """With what is not said, and without what is empty.

        Of what a client writes; what is stored has its defaults already.
        """
        del context
        return obj

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        """What the system makes of a new object before it is validated."""
        del context
        return new

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        """What the system makes of a changed object before it is validated."""
        del old, subresource, context
        return new

    def validate(self, new: Document, context: Context) -> list[Cause]:
        """What is wrong with a new object."""
        errors = FieldErrors(self.profile)
        metadata.validate(errors, new["metadata"], self._validate_name)
        self._validate(errors, new, None, context)
        return errors.causes

    def validate_update(
        self,
        new: Document,
        old: Document,
        requested: Document,
        subresource: str,
        context: Context,
    ) -> list[Cause]:
        """What is wrong with a changed object; `requested` is the object as it came."""
        errors = FieldErrors(self.profile)
        requested_metadata = requested.get("metadata") or {}
        metadata.validate_update(errors, new["metadata"], old["metadata"], requested_metadata)
        says_twice = not self.profile.has_declarative_validation
        if says_twice:
            errors.causes *= 2

        if subresource == "status":
            self._validate_status(errors, new, old, context)
        elif not subresource:
            self._validate(errors, new, old, context)
            if says_twice and self.kind in VALIDATED_TWICE:
                errors.causes *= 2
        return errors.causes

    def changes_generation(self, new: Document, old: Document) -> bool:
        """Whether the change is one that the object's controller has to see."""
        return bool(new.get("spec") != old.get("spec"))

    def warnings(self, obj: Document) -> list[str]:
        """Of what is not wrong, and yet should be otherwise."""
        del obj
        return []

    def allows_unconditional_update(self, api_version: str) -> bool:
        """May it be replaced by who does not say which version he has seen?"""
        del api_version
        return self.kind not in RESOURCE_VERSION_REQUIRED

    # ------------------------------------------------------------ for kinds with rules

    def _validate_name(self, name: str) -> list[str]:
        if self.group == RBAC_GROUP or self.kind == "ClusterTrustBundle":
            is_path = name in (".", "..") or not set("/%").isdisjoint(name)
            return ["may not be a part of a path"] if is_path else []
        if self.kind in ("Namespace", "Service"):
            return formats.dns_label(name)
        return formats.dns_subdomain(name)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        """Everything but the status; `old` is None for a new object."""

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        """The status alone."""
