"""The strategies of the resource API's kinds, from v1alpha3 on."""

from __future__ import annotations

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from . import (
    canonical,
    claims,
    classic,
    declarative,
    expressions,
    gates,
    metadata,
    pool_status,
    slices,
    status,
)
from .dumps import internal
from .field_errors import FieldErrors, quote
from .strategy import Context, Strategy

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
NO_ADMIN = (
    f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
)
V1BETA1 = "v1beta1"


class DraStrategy(Strategy):
    """The common part of the strategies: canonical objects, gated fields and declared rules."""

    # A new object has an empty status.
    has_empty_status = False

    @property
    def empty(self) -> Document:
        return canonical.round_trip(self.version, self.kind, {}, self.profile.release)

    def with_defaults(self, obj: Document, context: Context) -> Document:
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj = obj | {"spec": self._spec_with_defaults(spec, context)}
        return canonical.round_trip(self.version, self.kind, obj, self.profile.release)

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        new = gates.drop_disabled(self.kind, new, None, self.profile)
        return new | {"status": {}} if self.has_empty_status else new

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        return gates.drop_disabled(self.kind, new, old, self.profile)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        old_spec = None if old is None else old.get("spec") or {}
        self._validate_spec(errors, new, old_spec, context)
        self._validate_declared(errors, new, old, context)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        self._validate_new_status(errors, new, old, context)
        self._validate_declared(errors, new, old, context)

    def _validate_declared(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        """Adds the causes of the declared rules, with fields of the version of the request."""
        if not self.profile.has_declarative_validation:
            return
        declared = FieldErrors(self.profile)
        declarative.validate(declared, self.kind, new, old)
        causes = declared.causes
        if context.version == V1BETA1:
            causes = [declarative.in_v1beta1(self.kind, cause) for cause in causes]
        errors.causes += causes

    # ------------------------------------------------------------ overridden by single kinds

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        del context
        return spec

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        """Checks the spec by the rules that are code. `old_spec` is None for a new object."""

    def _validate_new_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        """Checks the status by the rules that are code."""


class ClaimStrategy(DraStrategy):
    """The strategy of ResourceClaims."""

    has_empty_status = True

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        return claims.with_defaults(spec, self.profile, context.version == V1BETA1)

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        new = super().prepare_for_update(new, old, subresource, context)
        if subresource != "status":
            return new
        new_status, old_status = new.get("status") or {}, old.get("status") or {}
        return new | {"status": status.without_deallocated(new_status, old_status)}

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        spec = new.get("spec") or {}
        if old_spec is None:
            _validate_admin_requests(errors, spec, new, context)
            claims.validate(errors, spec, self.profile, "spec")
        elif spec != old_spec:
            shown = internal("ResourceClaimSpec", spec, self.version)
            errors.invalid("spec", shown, "field is immutable", declared=True)

    def _validate_new_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        self._validate_admin_results(errors, new, old, context)
        status.validate_update(errors, new, old, self.profile)

    def _validate_admin_results(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        """Checks that the namespace allows admin access, unless the old claim has such a result."""
        if self.profile.is_flat or _admin_result(old) is not None:
            return
        index = _admin_result(new)
        if index is not None and not _allows_admin(new, context):
            path = f"status.allocation.devices.results[{index}].adminAccess"
            errors.forbidden(path, NO_ADMIN)


class TemplateStrategy(DraStrategy):
    """The strategy of ResourceClaimTemplates."""

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        claim_spec = spec.get("spec")
        if not isinstance(claim_spec, dict):
            return spec
        from_v1beta1 = context.version == V1BETA1
        return spec | {"spec": claims.with_defaults(claim_spec, self.profile, from_v1beta1)}

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        spec = new.get("spec") or {}
        if old_spec is not None:
            if spec != old_spec:
                shown = internal("ResourceClaimTemplateSpec", spec, self.version)
                errors.invalid("spec", shown, "field is immutable")
            return

        claim_spec, claim_metadata = spec.get("spec") or {}, spec.get("metadata") or {}
        _validate_admin_requests(errors, claim_spec, new, context)
        annotations, labels = claim_metadata.get("annotations"), claim_metadata.get("labels")
        metadata.validate_annotations(errors, annotations or {}, "spec.metadata.annotations")
        metadata.validate_labels(errors, labels or {}, "spec.metadata.labels")
        claims.validate(errors, claim_spec, self.profile, "spec.spec")


class SliceStrategy(DraStrategy):
    """The strategy of ResourceSlices."""

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        return spec if self.profile.is_flat else slices.with_defaults(spec, context.now)

    def warnings(self, obj: Document) -> list[str]:
        driver = (obj.get("spec") or {}).get("driver", "")
        if driver == driver.lower():
            return []
        why = f"{quote(driver)} contains uppercase characters"
        return [f"spec.driver: driver names should be lowercase; {why}"]

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        slices.validate(errors, new.get("spec") or {}, old_spec, self.profile)


class ClassStrategy(DraStrategy):
    """The strategy of DeviceClasses."""

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        """Checks the spec of a device class.

        Stored selectors, and the size of stored configurations, are not checked again. The limits
        may be stricter now than they were when the class was stored.
        """
        spec, before = new.get("spec") or {}, old_spec or {}
        selectors, configs = spec.get("selectors"), spec.get("config") or []
        if selectors != before.get("selectors"):
            expressions.validate_selectors(errors, selectors, "spec.selectors")
        if errors.too_many("spec.config", len(configs), limits.CONFIGS, declared=True):
            return
        limits_size = not self.profile.is_flat and configs != before.get("config")
        for index, config in enumerate(configs):
            claims.validate_config(errors, config, f"spec.config[{index}]", limits_size)


class TaintRuleStrategy(DraStrategy):
    """The strategy of DeviceTaintRules."""

    has_empty_status = True

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        taint = spec.get("taint")
        if not isinstance(taint, dict):
            return spec
        return spec | {"taint": slices.with_time(taint, context.now)}

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        new = super().prepare_for_update(new, old, subresource, context)
        return new if subresource else pool_status.with_new_time(new, old, context.now)

    def allows_unconditional_update(self, api_version: str) -> bool:
        return not api_version.endswith("/v1")

    def _validate_spec(
        self, errors: FieldErrors, new: Document, old_spec: Document | None, context: Context
    ) -> None:
        pool_status.validate_rule(errors, new.get("spec") or {}, old_spec)

    def _validate_new_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        pool_status.validate_rule_status(errors, new)


class PoolStatusRequestStrategy(DraStrategy):
    """The strategy of ResourcePoolStatusRequests."""

    def _spec_with_defaults(self, spec: Document, context: Context) -> Document:
        return pool_status.with_defaults(spec)

    def _validate_new_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        pool_status.validate_request_status(errors, new, old)


class ClassicRules(Strategy):
    """The validation by the rules of v1alpha2."""

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        classic.validate(errors, self.kind, new, old)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        classic.validate_status(errors, self.kind, new, old)


class SchedulingContextStrategy(ClassicRules, DraStrategy):
    """The strategy of PodSchedulingContexts, whose rules are still those of v1alpha2."""

    has_empty_status = True


STRATEGIES: dict[str, type[DraStrategy]] = {
    "ResourceClaim": ClaimStrategy,
    "ResourceClaimTemplate": TemplateStrategy,
    "ResourceSlice": SliceStrategy,
    "DeviceClass": ClassStrategy,
    "DeviceTaintRule": TaintRuleStrategy,
    "ResourcePoolStatusRequest": PoolStatusRequestStrategy,
    "PodSchedulingContext": SchedulingContextStrategy,
}

# ---------------------------------------------------------------- admin access


def _validate_admin_requests(
    errors: FieldErrors, spec: Document, obj: Document, context: Context
) -> None:
    """Checks that the namespace allows admin access, at the first request that asks for it."""
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            if not _allows_admin(obj, context):
                errors.forbidden(f"spec.devices.requests[{index}].adminAccess", NO_ADMIN)
            return


def _allows_admin(obj: Document, context: Context) -> bool:
    """Returns True if the namespace of the object has the label that allows admin access."""
    namespace = context.namespace(obj["metadata"].get("namespace", "")) or {}
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(ADMIN_LABEL) == "true")


def _admin_result(claim: Document) -> int | None:
    """Returns the index of the first device that is allocated with admin access, or None."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("adminAccess"):
            return index
    return None
