"""The rules of one kind on one release, put together: what the registry asks, and which module
knows the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ....api import limits
from ....api.document import Document
from ....api.objects import models
from ..types.resource import GroupResource
from ..types.status_errors import Cause
from . import (
    canonical,
    claims,
    classic,
    core_kinds,
    declarative,
    expressions,
    gates,
    metadata,
    pool_status,
    slices,
    status,
    texts,
)
from .dumps import inner
from .field_errors import FieldErrors, quoted
from .profile import Profile

LABEL = "resource.kubernetes.io/admin-access"
NO_ADMIN = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


VALIDATED_TWICE = (
    "DeviceClass",
    "ResourceClass",
    "PodSchedulingContext",
)  # whose changes old servers checked twice
RESOURCE_VERSION_REQUIRED = (
    "Lease",
    "ResourcePoolStatusRequest",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@dataclass(frozen=True)
class Context:
    """What a rule may look at besides the object."""

    now: str
    version: str  # in which the object came
    namespace: Callable[[str], Document | None]


class Strategy:
    """Of a kind without rules of its own: metadata alone."""

    def __init__(self, resource: GroupResource, version: str, profile: Profile) -> None:
        self.kind, self.group, self.profile = resource.kind, resource.group, profile
        self.version = f"{version}-1.31" if version == "v1alpha3" and profile.flat else version

    def with_defaults(self, obj: Document, context: Context) -> Document:
        """What is not said, and nothing that is empty. Of what is written, and of nothing that is
        stored.
        """
        del context
        return obj

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        """Before a new object is checked."""
        del context
        return new

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        """Before a changed object is checked."""
        del old, subresource, context
        return new

    @property
    def empty(self) -> Document:
        """An object of which nobody has said anything: what is in it is nobody's."""
        return {}

    @property
    def status_takes_metadata(self) -> bool:
        """Whether who writes the status comes to own what he says of labels and the like."""
        return self.group == models.GROUP and not self.profile.modern

    def warnings(self, obj: Document) -> list[str]:
        """Of what is not wrong, and yet should be otherwise."""
        driver = (obj.get("spec") or {}).get("driver", "") if self.kind == "ResourceSlice" else ""
        if driver == driver.lower():
            return []
        return [
            f"spec.driver: driver names should be lowercase; {quoted(driver)} contains uppercase characters"
        ]

    def allows_unconditional_update(self, api_version: str) -> bool:
        """May it be replaced by who does not say which version he has seen?"""
        if self.kind == "DeviceTaintRule":
            return not api_version.endswith("/v1")
        return self.kind not in RESOURCE_VERSION_REQUIRED

    def validate(self, new: Document, context: Context) -> list[Cause]:
        errors = FieldErrors(self.profile)
        metadata.check_new(errors, new["metadata"], self._names)
        self._check(errors, new, None, context)
        return errors.causes

    def validate_update(
        self,
        new: Document,
        old: Document,
        said: Document,
        subresource: str,
        context: Context,
    ) -> list[Cause]:
        """`said` is the new object as it came."""
        errors = FieldErrors(self.profile)
        metadata.check_change(errors, new["metadata"], old["metadata"], said.get("metadata") or {})
        if not errors.modern:
            errors.causes *= 2  # they looked twice
        if subresource == "status":
            self._check_status(errors, new, old, context)
        elif not subresource:
            self._check(errors, new, old, context)
            if not errors.modern and self.kind in VALIDATED_TWICE:
                errors.causes *= 2
        return errors.causes

    @property
    def _names(self) -> metadata.Names:
        if self.group == "rbac.authorization.k8s.io":
            return lambda name: (
                ["may not be a part of a path"]
                if name in (".", "..") or set(name) & set("/%")
                else []
            )
        return texts.label if self.kind in ("Namespace", "Service") else texts.subdomain

    def _check(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        pass

    def _check_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        pass


class CoreStrategy(Strategy):
    """Pods, nodes, namespaces, configuration maps."""

    @property
    def empty(self) -> Document:
        return core_kinds.EMPTY.get(self.kind, {})

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return core_kinds.with_defaults(self.kind, obj)

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        return core_kinds.begun(self.kind, new)

    def _check(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        core_kinds.check(errors, self.kind, new, old)

    def _check_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        core_kinds.check_status(errors, self.kind, new)


class ClassicStrategy(Strategy):
    @property
    def empty(self) -> Document:
        return canonical.typed(self.version, self.kind, {}, self.profile.release)

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return canonical.typed(
            self.version, self.kind, classic.with_defaults(self.kind, obj), self.profile.release
        )

    def _check(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        classic.check(errors, self.kind, new, old)

    def _check_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        classic.check_status(errors, self.kind, new, old)


class DraStrategy(Strategy):
    """The resource API since v1alpha3."""

    @property
    def empty(self) -> Document:
        return canonical.typed(self.version, self.kind, {}, self.profile.release)

    def with_defaults(self, obj: Document, context: Context) -> Document:
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj = obj | {"spec": self._spec_with_defaults(spec, context.now, context.version)}
        return canonical.typed(self.version, self.kind, obj, self.profile.release)

    def _spec_with_defaults(self, spec: Document, now: str, version: str) -> Document:
        if self.kind == "ResourceClaim":
            return claims.with_defaults(spec, self.profile.flat, version == "v1beta1")
        if self.kind == "ResourceClaimTemplate" and isinstance(spec.get("spec"), dict):
            return spec | {
                "spec": claims.with_defaults(spec["spec"], self.profile.flat, version == "v1beta1")
            }
        if self.kind == "ResourceSlice" and not self.profile.flat:
            return slices.with_defaults(spec, now)
        if self.kind == "DeviceTaintRule" and isinstance(spec.get("taint"), dict):
            return spec | {
                "taint": slices.with_times({"taints": [spec["taint"]]}, now)["taints"][0]
            }
        return pool_status.with_defaults(self.kind, spec)

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        new = gates.without_disabled(self.kind, new, None, self.profile)
        return (
            new | {"status": {}}
            if self.kind in ("ResourceClaim", "DeviceTaintRule", "PodSchedulingContext")
            else new
        )

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        new = gates.without_disabled(self.kind, new, old, self.profile)
        if self.kind == "ResourceClaim" and subresource == "status":
            changed = status.without_deallocated(new.get("status") or {}, old.get("status") or {})
            return new | {"status": changed}
        if self.kind == "DeviceTaintRule" and not subresource:
            return pool_status.with_new_time(new, old, context.now)
        return new

    # ------------------------------------------------------------ checks

    def _check(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        spec = new.get("spec") or {}
        before = None if old is None else old.get("spec") or {}
        if self.kind == "ResourceClaim":
            self._check_claim(errors, new, before, context)
        elif self.kind == "ResourceClaimTemplate":
            self._check_template(errors, new, before, context)
        elif self.kind == "ResourceSlice":
            slices.check(errors, spec, before, self.profile)
        elif self.kind == "DeviceClass":
            self._check_class(errors, spec, before or {})
        elif self.kind == "PodSchedulingContext":
            classic.check(errors, self.kind, new, old)
        else:
            pool_status.check(errors, self.kind, spec, before)
        self._check_declared(errors, new, old, context.version)

    def _check_declared(
        self, errors: FieldErrors, new: Document, old: Document | None, version: str
    ) -> None:
        """These rules look at the object as it came, and speak of its fields."""
        if not self.profile.modern:
            return
        found = FieldErrors(self.profile)
        declarative.check(found, self.kind, new, old)
        flat = version == "v1beta1"
        errors.causes += (
            [declarative.in_v1beta1(self.kind, cause) for cause in found.causes]
            if flat
            else found.causes
        )

    def _check_claim(
        self, errors: FieldErrors, new: Document, before: Document | None, context: Context
    ) -> None:
        spec = new.get("spec") or {}
        if before is None:
            self._check_admin(errors, spec, new, context)
            claims.check(errors, spec, self.profile, "spec")
        elif spec != before:
            errors.invalid(
                "spec",
                inner("ResourceClaimSpec", spec, self.version),
                "field is immutable",
                declared=True,
            )

    def _check_template(
        self, errors: FieldErrors, new: Document, before: Document | None, context: Context
    ) -> None:
        spec = new.get("spec") or {}
        if before is not None:
            if spec != before:
                shown = inner("ResourceClaimTemplateSpec", spec, self.version)
                errors.invalid("spec", shown, "field is immutable")
            return
        self._check_admin(errors, spec.get("spec") or {}, new, context)
        below = spec.get("metadata") or {}
        metadata.check_annotations(
            errors, below.get("annotations") or {}, "spec.metadata.annotations"
        )
        metadata.check_labels(errors, below.get("labels") or {}, "spec.metadata.labels")
        claims.check(errors, spec.get("spec") or {}, self.profile, "spec.spec")

    def _check_class(self, errors: FieldErrors, spec: Document, before: Document) -> None:
        if spec.get("selectors") != before.get("selectors"):
            expressions.check_selectors(errors, spec.get("selectors"), "spec.selectors")
        configs = spec.get("config") or []
        if not errors.too_many("spec.config", len(configs), limits.CONFIGS, declared=True):
            stored = configs == before.get("config")
            for index, config in enumerate(configs):
                claims.check_config(
                    errors, config, f"spec.config[{index}]", self.profile.flat, stored
                )

    def _check_admin(
        self, errors: FieldErrors, spec: Document, new: Document, context: Context
    ) -> None:
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                if not self._may_be_admin(new, context):
                    errors.forbidden(f"spec.devices.requests[{index}].adminAccess", NO_ADMIN)
                return

    def _may_be_admin(self, obj: Document, context: Context) -> bool:
        namespace = context.namespace(obj["metadata"].get("namespace", ""))
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        return bool(labels.get(LABEL) == "true")

    def _check_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        if self.kind == "ResourceClaim":
            self._check_admin_results(errors, new, old, context)
            status.check_change(errors, new, old, self.profile)
        elif self.kind == "PodSchedulingContext":
            classic.check_status(errors, self.kind, new, old)
        else:
            pool_status.check_status(errors, self.kind, new, old)
        self._check_declared(errors, new, old, context.version)

    def _check_admin_results(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        if self.profile.flat or _admin(old) >= 0:
            return
        index = _admin(new)
        if index >= 0 and not self._may_be_admin(new, context):
            errors.forbidden(f"status.allocation.devices.results[{index}].adminAccess", NO_ADMIN)


def _admin(claim: Document) -> int:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return next((index for index, result in enumerate(results) if result.get("adminAccess")), -1)


@cache
def of(resource: GroupResource, version: str, release: str) -> Strategy:
    profile = Profile(release)
    if resource.group == models.GROUP:
        return (ClassicStrategy if version == "v1alpha2" else DraStrategy)(
            resource, version, profile
        )
    return (CoreStrategy if not resource.group else Strategy)(resource, version, profile)
