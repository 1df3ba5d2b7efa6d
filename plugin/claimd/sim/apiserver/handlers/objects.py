"""The verbs on objects: a request for a kind is turned into a call of the registry and a result.

The request is authorized already. Watches are in `watches`, subresources other than the status are
in `subresources` and `scale`, and `wire.output` encodes the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from claimd.kubernetes.api.document import Document

from ..access import admission
from ..catalog import EVENTS_GROUP, ServedVersion
from ..storage import patches
from ..storage.registry import Registry
from ..types import selectors, status_errors
from ..types.options import ValidateAdmission, WriteOptions
from ..types.resource import GroupResource
from ..types.selectors import Predicate
from ..types.status_errors import bad_request
from ..wire import codec, query, strict_fields
from ..wire.resource_request import ListResult, ObjectResult, ResourceRequest, Result

SUCCESS: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

# The fields that a field selector may use, in addition to name and namespace.
FIELD_LABELS: dict[str, tuple[str, ...]] = {
    "CertificateSigningRequest": ("spec.signerName",),
    "ClusterTrustBundle": ("spec.signerName",),
    "Event": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "involvedObject.resourceVersion",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "PodCertificateRequest": ("spec.signerName", "spec.podName", "spec.nodeName"),
    "ReplicationController": ("status.replicas",),
    "ResourceSlice": ("spec.driver", "spec.nodeName"),
    "Secret": ("type",),
    "Service": ("spec.clusterIP", "spec.type"),
}
V1ALPHA2_SLICE_LABELS = ("driverName", "nodeName")

# Kinds whose deletion responds with the object; others respond with a Status.
RETURNS_DELETED_OBJECT = {
    "Pod",
    "Service",
    "ServiceAccount",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
    "PodSchedulingContext",
    "ResourceClass",
    "ResourceClaimParameters",
    "ResourceClassParameters",
    "ResourcePoolStatusRequest",
}


class Objects:
    """The handlers of the verbs.

    `admission` returns the check that every write of a request must pass.
    """

    def __init__(
        self, registry: Registry, admission: Callable[[ResourceRequest], ValidateAdmission]
    ) -> None:
        self._registry, self._admission = registry, admission

    # ------------------------------------------------------------ reading

    def get(self, request: ResourceRequest) -> ObjectResult:
        """Returns the object."""
        self._check_not_ahead(query.resource_version(request.http) or 0)
        resource, info = request.served.kind.resource, request.info
        obj = self._registry.store.get(resource, info.namespace, info.name)
        return ObjectResult(200, obj)

    def list(self, request: ResourceRequest) -> ListResult:
        """Returns a page of objects."""
        options, store = query.ListOptions.parse(request.http), self._registry.store
        self._check_not_ahead(options.at_least)
        page = store.page(
            request.served.kind.resource,
            request.info.namespace,
            predicate(request),
            options.limit,
            options.continue_token,
            options.exact,
        )

        # Custom resources show an empty continue token, because they are not encoded by a Go type.
        metadata: Document = {"resourceVersion": str(page.resource_version)}
        if page.continue_token or request.served.kind.is_custom:
            metadata["continue"] = page.continue_token
        if page.remaining_item_count and not options.has_selector:
            metadata["remainingItemCount"] = page.remaining_item_count
        return ListResult(200, metadata, page.items)

    def _check_not_ahead(self, version: int) -> None:
        """Refuses a version that does not exist yet.

        This server has no cache that could catch up.
        """
        current = self._registry.store.resource_version
        if version > current:
            raise status_errors.resource_version_too_large(version, current)

    # ------------------------------------------------------------ writing

    def create(self, request: ResourceRequest) -> ObjectResult:
        """Creates the object of the body."""
        kind, namespace = request.served.kind, request.info.namespace
        obj = self._decode(request)
        admission.check(self._registry.store, request.served, request.info, obj)
        stored = self._registry.create(kind, namespace, obj, self._write_options(request))
        return self._report_write(request, 201, stored)

    def update(self, request: ResourceRequest) -> ObjectResult:
        """Replaces the object by that of the body."""

        kind, info = request.served.kind, request.info
        obj = self._decode(request)
        options = self._write_options(request)
        stored = self._registry.update(kind, info.namespace, info.name, obj, options)
        return self._report_write(request, 200, stored)

    def patch(self, request: ResourceRequest) -> ObjectResult:
        """Applies one of the four kinds of patches."""
        form, patch = codec.patch(request.http)
        if form == "apply":
            return self._apply(request, patch)
        if "force" in request.http.query:
            why = "Forbidden: may not be specified for non-apply patch"
            raise query.invalid("PatchOptions", "force", "FieldValueForbidden", why)
        if form == "strategic" and request.served.kind.is_custom:
            raise codec.unsupported_media_type(codec.CUSTOM_PATCHES)
        options = self._write_options(request)

        def patch_stored(old: Document) -> Document:
            # The patch refers to the object in the version of the request.
            served = request.served
            shown = served.from_storage(old)
            new = patches.apply_patch(served.schema, shown, form, patch)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise bad_request("the patched object has no metadata")
            try:
                return self._to_storage(request, new)
            except strict_fields.WrongType as error:
                raise error.of_patch(new) from error

        kind, info = request.served.kind, request.info
        stored = self._registry.change(kind, info.namespace, info.name, patch_stored, options)
        return self._report_write(request, 200, stored)

    def _apply(self, request: ResourceRequest, config: Any) -> ObjectResult:
        if not isinstance(config, dict):
            raise bad_request("error decoding YAML: the body is not an object")
        if not request.http.param("fieldManager"):
            why = "Required value: is required for apply patch"
            raise query.invalid("PatchOptions", "fieldManager", "FieldValueRequired", why)

        served, info = request.served, request.info
        _check_applied_type(served, config)
        config = served.to_storage(strict_fields.decode_applied(served, config))
        force, options = request.http.flag("force"), self._write_options(request)
        stored, is_new = self._registry.apply(
            served.kind, info.namespace, info.name, config, options, force
        )
        return self._report_write(request, 201 if is_new else 200, stored)

    def delete(self, request: ResourceRequest) -> Result | ObjectResult:
        """Deletes an object. Returns the object or a Status, as a real server does for the kind."""
        served, info, store = request.served, request.info, self._registry.store
        admission.check(store, served, info)
        options, waits = query.delete_options(request.http, self._admission(request))
        resource = served.kind.resource
        before = store.get(resource, info.namespace, info.name)
        last = self._registry.delete(served.kind, info.namespace, info.name, options)

        # An object that is still there waits for its finalizers or its grace period.
        is_gone = options.dry_run or store.find(resource, info.namespace, info.name) is None
        if not is_gone:
            return ObjectResult(202 if waits else 200, last)

        # A DeviceTaintRule in v1 is an exception: its deletion responds with a Status.
        is_late_taint_rule = (resource.kind, served.version) == ("DeviceTaintRule", "v1")
        if resource.kind in RETURNS_DELETED_OBJECT and not is_late_taint_rule:
            return ObjectResult(200, last)

        details = {
            "name": info.name,
            "group": served.group,
            "kind": resource.plural,
            "uid": before["metadata"]["uid"],
        }
        details = {part: value for part, value in details.items() if value}
        return Result(200, SUCCESS | {"details": details})

    def delete_collection(self, request: ResourceRequest) -> ListResult:
        """Deletes the selected objects, and returns their list."""
        options, _ = query.delete_options(request.http, self._admission(request))
        list_options, store = query.ListOptions.parse(request.http), self._registry.store
        kind = request.served.kind
        page = store.page(
            kind.resource,
            request.info.namespace,
            predicate(request),
            list_options.limit,
            list_options.continue_token,
        )

        deleted = []
        for obj in page.items:
            metadata = obj["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            last = self._registry.delete(kind, namespace, name, options)
            # An object that is gone at once is shown as it was before.
            deleted.append(last if "deletionTimestamp" in last["metadata"] else obj)

        metadata = {"resourceVersion": str(store.resource_version)}
        return ListResult(200, metadata, deleted)

    # ------------------------------------------------------------ parts of several verbs

    def _decode(self, request: ResourceRequest) -> Document:
        """Returns the object of the body, converted to the storage version."""
        obj = codec.document(request.http, request.served.kind.resource.kind)
        _check_type(request.served, obj)
        duplicates: list[str] = []
        if query.field_validation(request.http) != "Ignore":
            duplicates = codec.duplicate_fields(request.http)
        return self._to_storage(request, obj, duplicates)

    def _to_storage(
        self, request: ResourceRequest, obj: Document, duplicates: Sequence[str] = ()
    ) -> Document:
        """Returns the object in the storage version, without fields that its own version lacks."""
        validation = query.field_validation(request.http)
        known, warnings = strict_fields.decode(request.served, obj, validation, duplicates)
        request.warnings.extend(warnings)
        return request.served.to_storage(known)

    def _report_write(
        self, request: ResourceRequest, status: int, stored: Document
    ) -> ObjectResult:
        """Returns the result of a write, and adds the warnings for its client to the request."""
        request.warnings.extend(self._registry.warnings(request.served.kind, stored))
        if not request.info.subresource:
            request.warnings.extend(self._registry.advice(stored))
        return ObjectResult(status, stored)

    def _write_options(self, request: ResourceRequest) -> WriteOptions:
        return WriteOptions(
            field_manager=query.field_manager(request.http),
            dry_run=query.dry_run(request.http),
            subresource=request.info.subresource,
            api_version=request.served.api_version,
            validate_admission=self._admission(request),
        )


# ---------------------------------------------------------------- selectors


def predicate(request: ResourceRequest) -> Predicate | None:
    """Returns the predicate of the request's selectors for stored objects. None selects all.

    Field selectors use the names of the storage version, and for Events those of the core group,
    whatever the version of the request is.
    """
    served, info = request.served, request.info
    kind = served.kind.resource.kind
    selectable: tuple[str, ...] = ("metadata.name",)
    if served.version == "v1alpha2" and kind == "ResourceSlice":
        selectable += V1ALPHA2_SLICE_LABELS
    else:
        if served.kind.namespaced:
            selectable += ("metadata.namespace",)
        selectable += served.api_resource.selectable or FIELD_LABELS.get(kind, ())

    text = request.http.param("fieldSelector")
    if served.group == EVENTS_GROUP:
        # events.k8s.io has names of its own for the same fields.
        text = text.replace("regarding.", "involvedObject.")
        text = text.replace("reportingController", "reportingComponent")

    by_labels = selectors.labels(request.http.param("labelSelector"))
    by_fields = selectors.fields(text, selectable, _unsupported_field(served))

    if info.deprecated_watch and info.name:
        name = info.name
        by_fields = selectors.both(by_fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(by_labels, by_fields)


def _unsupported_field(served: ServedVersion) -> str:
    """Returns the message about a field that cannot be selected by. It depends on the kind."""
    kind = served.kind.resource.kind
    if kind == "ResourceSlice":
        return f"field label not supported for {served.api_version}, Kind=ResourceSlice: {{}}"
    if kind in FIELD_LABELS or served.kind.is_custom:
        return selectors.UNSUPPORTED_FIELD
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


# ---------------------------------------------------------------- the type of an object


def _check_applied_type(served: ServedVersion, config: Document) -> None:
    """Refuses a configuration that does not have the apiVersion and kind of the path."""
    version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if (version, kind) != (served.api_version, served.kind.resource.kind):
        group_version = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {group_version}, Kind={kind}")


def _check_type(served: ServedVersion, obj: Document) -> None:
    """Refuses an object whose apiVersion or kind differs from that of the path.

    Both may be absent.
    """
    expected = served.kind.resource.kind
    api_version, kind = obj.get("apiVersion") or served.api_version, obj.get("kind") or expected
    if not isinstance(obj.get("metadata", {}), dict):
        what = f'{expected} in version "{served.version}" cannot be handled as a {expected}'
        raise bad_request(f"{what}: metadata is no object")

    # A custom resource has no Go type, so its kind is validated as a field.
    if kind != expected and served.kind.is_custom:
        name = (obj.get("metadata") or {}).get("name", "")
        why = f'Invalid value: "{kind}": must be {expected}'
        cause = status_errors.Cause("FieldValueInvalid", why, "kind")
        resource = served.kind.resource
        said = GroupResource(resource.plural, resource.group, kind)
        raise status_errors.invalid(said, name, [cause])

    # A built-in object is decoded into the Go type of its kind, which does not fit the path.
    if kind != expected:
        version = str(api_version).rpartition("/")[2]
        package = (served.group or "core").partition(".")[0]
        what = f'{kind} in version "{version}" cannot be handled as a {expected}'
        conversion = f"converting ({version}.{kind}) to ({package}.{expected}): unknown conversion"
        raise bad_request(f"{what}: {conversion}")

    if api_version != served.api_version:
        differs = f"does not match the expected API version ({served.api_version})"
        raise bad_request(f"the API version in the data ({api_version}) {differs}")
