"""The interface between the registry and the rules of a kind.

The steps of a write have the same names as in a real server's registry. `Strategy` is for a kind
without special rules. `strategies` and `dra` have the others.
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

# Kinds whose updates old servers validated twice. Each cause is reported twice.
VALIDATED_TWICE = ("DeviceClass", "ResourceClass", "PodSchedulingContext")

# Kinds whose updates must have a resource version.
RESOURCE_VERSION_REQUIRED = (
    "Lease",
    "PodGroup",
    "ResourcePoolStatusRequest",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Workload",
)


@dataclass(frozen=True)
class Context:
    """Everything that a strategy may read in addition to the object."""

    now: str
    # The version of the request.
    version: str
    namespace: Callable[[str], Document | None]
    priority_classes: Callable[[], Sequence[Document]] = tuple


class Strategy:
    """The rules of a kind on a release. Pure: a given object is never changed."""

    def __init__(self, resource: GroupResource, version: str, profile: Profile) -> None:
        self.kind, self.group, self.profile = resource.kind, resource.group, profile
        is_first_v1alpha3 = version == "v1alpha3" and profile.is_flat
        self.version = f"{version}-1.31" if is_first_v1alpha3 else version

    @property
    def empty(self) -> Document:
        """The fields of an object whose writer has set none. They have no owner."""
        return {}

    @property
    def status_takes_metadata(self) -> bool:
        """True if the writer of a status becomes the owner of the metadata in the request."""
        return self.group == models.GROUP and not self.profile.has_declarative_validation

    @property
    def keeps_new_status(self) -> bool:
        """True if an object may be created with a status."""
        return False

    @property
    def default_propagation_policy(self) -> str:
        """The policy for dependents if the client of a deletion sets none."""
        return ""

    @property
    def deletion_finalizers(self) -> tuple[str, ...]:
        """The finalizers that a deletion adds to every object of the kind."""
        return ()

    # ------------------------------------------------------------ the steps of a write in order

    def check_admission(self, obj: Document, old: Document | None, context: Context) -> None:
        """Raises the StatusError of an admission plugin that refuses the object of the request."""

    def with_defaults(self, obj: Document, context: Context) -> Document:
        """Returns the object with its defaults and without empty fields.

        This is for objects of clients. Stored objects have their defaults already.
        """
        del context
        return obj

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        """Returns a new object with the system's fields, before its validation."""
        del context
        return new

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        """Returns a changed object with the system's fields, before its validation."""
        del old, subresource, context
        return new

    def validate(self, new: Document, context: Context) -> list[Cause]:
        """Returns the causes that make a new object invalid."""
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
        """Returns the causes that make a changed object invalid.

        `requested` is the object of the request.
        """
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
        """Returns True if the change matters to the object's controller."""
        return bool(new.get("spec") != old.get("spec"))

    def warnings(self, obj: Document) -> list[str]:
        """Returns warnings about an object that is valid but questionable."""
        del obj
        return []

    def allows_unconditional_update(self, api_version: str) -> bool:
        """Returns True if an update needs no resource version."""
        del api_version
        return self.kind not in RESOURCE_VERSION_REQUIRED

    # ------------------------------------------------------------ overridden by kinds with rules

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
        """Validates everything but the status. `old` is None for a new object."""

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        """Validates the status alone."""
