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
from .causes import Causes, quoted
from .dumps import inner
from .profile import Profile

LABEL = "resource.kubernetes.io/admin-access"
NO_ADMIN = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


TWICE = (
    "DeviceClass",
    "ResourceClass",
    "PodSchedulingContext",
)  # whose changes old servers checked twice
SEEING = (
    "Lease",
    "ResourcePoolStatusRequest",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@dataclass(frozen=True)
class Surroundings:
    """What a rule may look at besides the object."""

    now: str
    version: str  # in which the object came
    namespace: Callable[[str], Document | None]


class Strategy:
    """Of a kind without rules of its own: metadata alone."""

    def __init__(self, resource: GroupResource, version: str, profile: Profile) -> None:
        self.kind, self.group, self.profile = resource.kind, resource.group, profile
        self.version = f"{version}-1.31" if version == "v1alpha3" and profile.flat else version

    def default(self, obj: Document, around_it: Surroundings) -> Document:
        """What is not said, and nothing that is empty. Of what is written, and of nothing that is
        stored.
        """
        del around_it
        return obj

    def begin(self, new: Document, around_it: Surroundings) -> Document:
        """Before a new object is checked."""
        del around_it
        return new

    def change(
        self, new: Document, old: Document, subresource: str, around_it: Surroundings
    ) -> Document:
        """Before a changed object is checked."""
        del old, subresource, around_it
        return new

    @property
    def empty(self) -> Document:
        """An object of which nobody has said anything: what is in it is nobody's."""
        return {}

    @property
    def takes_metadata(self) -> bool:
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

    def blind(self, api_version: str) -> bool:
        """May it be replaced by who does not say which version he has seen?"""
        if self.kind == "DeviceTaintRule":
            return not api_version.endswith("/v1")
        return self.kind not in SEEING

    def check_new(self, new: Document, around_it: Surroundings) -> list[Cause]:
        causes = Causes(self.profile)
        metadata.check_new(causes, new["metadata"], self._names)
        self._check(causes, new, None, around_it)
        return causes.found

    def check_change(
        self,
        new: Document,
        old: Document,
        said: Document,
        subresource: str,
        around_it: Surroundings,
    ) -> list[Cause]:
        """`said` is the new object as it came."""
        causes = Causes(self.profile)
        metadata.check_change(causes, new["metadata"], old["metadata"], said.get("metadata") or {})
        if not causes.modern:
            causes.found *= 2  # they looked twice
        if subresource == "status":
            self._check_status(causes, new, old, around_it)
        elif not subresource:
            self._check(causes, new, old, around_it)
            if not causes.modern and self.kind in TWICE:
                causes.found *= 2
        return causes.found

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
        self, causes: Causes, new: Document, old: Document | None, around_it: Surroundings
    ) -> None:
        pass

    def _check_status(
        self, causes: Causes, new: Document, old: Document, around_it: Surroundings
    ) -> None:
        pass


class Around(Strategy):
    """Pods, nodes, namespaces, configuration maps."""

    @property
    def empty(self) -> Document:
        return core_kinds.EMPTY.get(self.kind, {})

    def default(self, obj: Document, around_it: Surroundings) -> Document:
        return core_kinds.with_defaults(self.kind, obj)

    def begin(self, new: Document, around_it: Surroundings) -> Document:
        return core_kinds.begun(self.kind, new)

    def _check(
        self, causes: Causes, new: Document, old: Document | None, around_it: Surroundings
    ) -> None:
        core_kinds.check(causes, self.kind, new, old)

    def _check_status(
        self, causes: Causes, new: Document, old: Document, around_it: Surroundings
    ) -> None:
        core_kinds.check_status(causes, self.kind, new)


class Classic(Strategy):
    @property
    def empty(self) -> Document:
        return canonical.typed(self.version, self.kind, {}, self.profile.release)

    def default(self, obj: Document, around_it: Surroundings) -> Document:
        return canonical.typed(
            self.version, self.kind, classic.with_defaults(self.kind, obj), self.profile.release
        )

    def _check(
        self, causes: Causes, new: Document, old: Document | None, around_it: Surroundings
    ) -> None:
        classic.check(causes, self.kind, new, old)

    def _check_status(
        self, causes: Causes, new: Document, old: Document, around_it: Surroundings
    ) -> None:
        classic.check_status(causes, self.kind, new, old)


class Dra(Strategy):
    """The resource API since v1alpha3."""

    @property
    def empty(self) -> Document:
        return canonical.typed(self.version, self.kind, {}, self.profile.release)

    def default(self, obj: Document, around_it: Surroundings) -> Document:
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj = obj | {"spec": self._spec_with_defaults(spec, around_it.now, around_it.version)}
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

    def begin(self, new: Document, around_it: Surroundings) -> Document:
        new = gates.without_disabled(self.kind, new, None, self.profile)
        return (
            new | {"status": {}}
            if self.kind in ("ResourceClaim", "DeviceTaintRule", "PodSchedulingContext")
            else new
        )

    def change(
        self, new: Document, old: Document, subresource: str, around_it: Surroundings
    ) -> Document:
        new = gates.without_disabled(self.kind, new, old, self.profile)
        if self.kind == "ResourceClaim" and subresource == "status":
            changed = status.without_deallocated(new.get("status") or {}, old.get("status") or {})
            return new | {"status": changed}
        if self.kind == "DeviceTaintRule" and not subresource:
            return pool_status.with_new_time(new, old, around_it.now)
        return new

    # ------------------------------------------------------------ checks

    def _check(
        self, causes: Causes, new: Document, old: Document | None, around_it: Surroundings
    ) -> None:
        spec = new.get("spec") or {}
        before = None if old is None else old.get("spec") or {}
        if self.kind == "ResourceClaim":
            self._check_claim(causes, new, before, around_it)
        elif self.kind == "ResourceClaimTemplate":
            self._check_template(causes, new, before, around_it)
        elif self.kind == "ResourceSlice":
            slices.check(causes, spec, before, self.profile)
        elif self.kind == "DeviceClass":
            self._check_class(causes, spec, before or {})
        elif self.kind == "PodSchedulingContext":
            classic.check(causes, self.kind, new, old)
        else:
            pool_status.check(causes, self.kind, spec, before)
        self._check_declared(causes, new, old, around_it.version)

    def _check_declared(
        self, causes: Causes, new: Document, old: Document | None, version: str
    ) -> None:
        """These rules look at the object as it came, and speak of its fields."""
        if not self.profile.modern:
            return
        found = Causes(self.profile)
        declarative.check(found, self.kind, new, old)
        flat = version == "v1beta1"
        causes.found += (
            [declarative.in_v1beta1(self.kind, cause) for cause in found.found]
            if flat
            else found.found
        )

    def _check_claim(
        self, causes: Causes, new: Document, before: Document | None, around_it: Surroundings
    ) -> None:
        spec = new.get("spec") or {}
        if before is None:
            self._check_admin(causes, spec, new, around_it)
            claims.check(causes, spec, self.profile, "spec")
        elif spec != before:
            causes.invalid(
                "spec",
                inner("ResourceClaimSpec", spec, self.version),
                "field is immutable",
                declared=True,
            )

    def _check_template(
        self, causes: Causes, new: Document, before: Document | None, around_it: Surroundings
    ) -> None:
        spec = new.get("spec") or {}
        if before is not None:
            if spec != before:
                shown = inner("ResourceClaimTemplateSpec", spec, self.version)
                causes.invalid("spec", shown, "field is immutable")
            return
        self._check_admin(causes, spec.get("spec") or {}, new, around_it)
        below = spec.get("metadata") or {}
        metadata.check_annotations(
            causes, below.get("annotations") or {}, "spec.metadata.annotations"
        )
        metadata.check_labels(causes, below.get("labels") or {}, "spec.metadata.labels")
        claims.check(causes, spec.get("spec") or {}, self.profile, "spec.spec")

    def _check_class(self, causes: Causes, spec: Document, before: Document) -> None:
        if spec.get("selectors") != before.get("selectors"):
            expressions.check_selectors(causes, spec.get("selectors"), "spec.selectors")
        configs = spec.get("config") or []
        if not causes.too_many("spec.config", len(configs), limits.CONFIGS, declared=True):
            stored = configs == before.get("config")
            for index, config in enumerate(configs):
                claims.check_config(
                    causes, config, f"spec.config[{index}]", self.profile.flat, stored
                )

    def _check_admin(
        self, causes: Causes, spec: Document, new: Document, around_it: Surroundings
    ) -> None:
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                if not self._may_be_admin(new, around_it):
                    causes.forbidden(f"spec.devices.requests[{index}].adminAccess", NO_ADMIN)
                return

    def _may_be_admin(self, obj: Document, around_it: Surroundings) -> bool:
        namespace = around_it.namespace(obj["metadata"].get("namespace", ""))
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        return bool(labels.get(LABEL) == "true")

    def _check_status(
        self, causes: Causes, new: Document, old: Document, around_it: Surroundings
    ) -> None:
        if self.kind == "ResourceClaim":
            self._check_admin_results(causes, new, old, around_it)
            status.check_change(causes, new, old, self.profile)
        elif self.kind == "PodSchedulingContext":
            classic.check_status(causes, self.kind, new, old)
        else:
            pool_status.check_status(causes, self.kind, new, old)
        self._check_declared(causes, new, old, around_it.version)

    def _check_admin_results(
        self, causes: Causes, new: Document, old: Document, around_it: Surroundings
    ) -> None:
        if self.profile.flat or _admin(old) >= 0:
            return
        index = _admin(new)
        if index >= 0 and not self._may_be_admin(new, around_it):
            causes.forbidden(f"status.allocation.devices.results[{index}].adminAccess", NO_ADMIN)


def _admin(claim: Document) -> int:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return next((index for index, result in enumerate(results) if result.get("adminAccess")), -1)


@cache
def of(resource: GroupResource, version: str, release: str) -> Strategy:
    profile = Profile(release)
    if resource.group == models.GROUP:
        return (Classic if version == "v1alpha2" else Dra)(resource, version, profile)
    return (Around if not resource.group else Strategy)(resource, version, profile)
