"""The verbs on objects: what a request for one kind asks of the registry, and its result.

Authorized already. Watches are in `watches`, subresources beyond the status in `subresources` and
`scale`, how a result is written in `wire.responses`.
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

# Fields that a kind can be selected by, beside its name and namespace.
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
    """`admission` gives what every write of a request has to pass."""

    def __init__(
        self, registry: Registry, admission: Callable[[ResourceRequest], ValidateAdmission]
    ) -> None:
        self._registry, self._admission = registry, admission

    # ------------------------------------------------------------ reading

    def get(self, request: ResourceRequest) -> ObjectResult:
        self._check_not_ahead(query.resource_version(request.http) or 0)
        resource, info = request.served.kind.resource, request.info
        obj = self._registry.store.get(resource, info.namespace, info.name)
        return ObjectResult(200, obj)

    def list(self, request: ResourceRequest) -> ListResult:
        options, store = query.ListOptions.of(request.http), self._registry.store
        self._check_not_ahead(options.at_least)
        page = store.page(
            request.served.kind.resource,
            request.info.namespace,
            predicate(request),
            options.limit,
            options.continue_token,
            options.exact,
        )

        metadata: Document = {"resourceVersion": str(page.resource_version)}
        if page.continue_token or request.served.kind.is_custom:
            metadata["continue"] = page.continue_token
        if page.remaining_item_count and not options.has_selector:
            metadata["remainingItemCount"] = page.remaining_item_count
        return ListResult(200, metadata, page.items)

    def _check_not_ahead(self, version: int) -> None:
        """There is no cache here that could catch up: what is not there yet is refused at once."""
        current = self._registry.store.resource_version
        if version > current:
            raise status_errors.resource_version_too_large(version, current)

    # ------------------------------------------------------------ writing

    def create(self, request: ResourceRequest) -> ObjectResult:
        kind, namespace = request.served.kind, request.info.namespace
        obj = self._decode(request)
        admission.check(self._registry.store, request.served, request.info, obj)
        stored = self._registry.create(kind, namespace, obj, self._write_options(request))
        return self._written(request, 201, stored)

    def update(self, request: ResourceRequest) -> ObjectResult:
        kind, info = request.served.kind, request.info
        obj = self._decode(request)
        options = self._write_options(request)
        stored = self._registry.update(kind, info.namespace, info.name, obj, options)
        return self._written(request, 200, stored)

    def patch(self, request: ResourceRequest) -> ObjectResult:
        form, patch = codec.patch(request.http)
        if form == "apply":
            return self._apply(request, patch)
        if "force" in request.http.query:
            why = "Forbidden: may not be specified for non-apply patch"
            raise query.invalid("PatchOptions", "force", "FieldValueForbidden", why)
        if form == "strategic" and request.served.kind.is_custom:
            raise codec.unsupported_media_type(codec.CUSTOM_PATCHES)
        options = self._write_options(request)

        def patched(old: Document) -> Document:
            # A patch is of the object in the version that the client speaks.
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
        stored = self._registry.change(kind, info.namespace, info.name, patched, options)
        return self._written(request, 200, stored)

    def _apply(self, request: ResourceRequest, config: Any) -> ObjectResult:
        if not isinstance(config, dict):
            raise bad_request("error decoding YAML: the body is not an object")
        if not request.param("fieldManager"):
            why = "Required value: is required for apply patch"
            raise query.invalid("PatchOptions", "fieldManager", "FieldValueRequired", why)

        served, info = request.served, request.info
        _check_applied_type(served, config)
        config = served.to_storage(strict_fields.decode_applied(served, config))
        force, options = request.http.flag("force"), self._write_options(request)
        stored, is_new = self._registry.apply(
            served.kind, info.namespace, info.name, config, options, force
        )
        return self._written(request, 201 if is_new else 200, stored)

    def delete(self, request: ResourceRequest) -> Result | ObjectResult:
        served, info, store = request.served, request.info, self._registry.store
        admission.check(store, served, info)
        options, waits = query.delete_options(request.http, self._admission(request))
        resource = served.kind.resource
        before = store.get(resource, info.namespace, info.name)
        last = self._registry.delete(served.kind, info.namespace, info.name, options)

        is_gone = options.dry_run or store.find(resource, info.namespace, info.name) is None
        if not is_gone:
            return ObjectResult(202 if waits else 200, last)
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
        options, _ = query.delete_options(request.http, self._admission(request))
        list_options, store = query.ListOptions.of(request.http), self._registry.store
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
            deleted.append(last if "deletionTimestamp" in last["metadata"] else obj)
        metadata = {"resourceVersion": str(store.resource_version)}
        return ListResult(200, metadata, deleted)

    # ------------------------------------------------------------ what they share

    def _decode(self, request: ResourceRequest) -> Document:
        """The object of the body, in the storage version."""
        obj = codec.document(request.http, request.served.kind.resource.kind)
        _check_type(request.served, obj)
        duplicates: list[str] = []
        if query.field_validation(request.http) != "Ignore":
            duplicates = codec.duplicate_fields(request.http)
        return self._to_storage(request, obj, duplicates)

    def _to_storage(
        self, request: ResourceRequest, obj: Document, duplicates: Sequence[str] = ()
    ) -> Document:
        """In the storage version, without the fields that its own version does not have."""
        validation = query.field_validation(request.http)
        known, warnings = strict_fields.decode(request.served, obj, validation, duplicates)
        request.warnings.extend(warnings)
        return request.served.to_storage(known)

    def _written(self, request: ResourceRequest, status: int, stored: Document) -> ObjectResult:
        """What was written, with what its writer should hear of it."""
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


# ---------------------------------------------------------------- selections


def predicate(request: ResourceRequest) -> Predicate | None:
    """Which objects the request's selectors take, as they are stored; None takes all.

    Fields are named as in the core's Event and in the storage version, whatever version is asked.
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

    text = request.param("fieldSelector")
    if served.group == EVENTS_GROUP:
        # It selects by its own names for the same fields.
        text = text.replace("regarding.", "involvedObject.")
        text = text.replace("reportingController", "reportingComponent")
    by_labels = selectors.labels(request.param("labelSelector"))
    by_fields = selectors.fields(text, selectable, _unsupported_field(served))

    if info.deprecated_watch and info.name:
        name = info.name
        by_fields = selectors.both(by_fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(by_labels, by_fields)


def _unsupported_field(served: ServedVersion) -> str:
    """The message for a field that cannot be selected by: some kinds have words of their own."""
    kind = served.kind.resource.kind
    if kind == "ResourceSlice":
        return f"field label not supported for {served.api_version}, Kind=ResourceSlice: {{}}"
    if kind in FIELD_LABELS or served.kind.is_custom:
        return selectors.UNSUPPORTED_FIELD
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


# ---------------------------------------------------------------- is it of the right type?


def _check_applied_type(served: ServedVersion, config: Document) -> None:
    """A configuration has to say what it is."""
    version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if (version, kind) != (served.api_version, served.kind.resource.kind):
        group_version = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {group_version}, Kind={kind}")


def _check_type(served: ServedVersion, obj: Document) -> None:
    """An object that says nothing of it is of the type that the path says."""
    expected = served.kind.resource.kind
    api_version, kind = obj.get("apiVersion") or served.api_version, obj.get("kind") or expected
    if not isinstance(obj.get("metadata", {}), dict):
        what = f'{expected} in version "{served.version}" cannot be handled as a {expected}'
        raise bad_request(f"{what}: metadata is no object")
    if kind != expected and served.kind.is_custom:
        name = (obj.get("metadata") or {}).get("name", "")
        why = f'Invalid value: "{kind}": must be {expected}'
        cause = status_errors.Cause("FieldValueInvalid", why, "kind")
        resource = served.kind.resource
        said = GroupResource(resource.plural, resource.group, kind)
        raise status_errors.invalid(said, name, [cause])
    if kind != expected:
        version = str(api_version).rpartition("/")[2]
        package = (served.group or "core").partition(".")[0]
        what = f'{kind} in version "{version}" cannot be handled as a {expected}'
        conversion = f"converting ({version}.{kind}) to ({package}.{expected}): unknown conversion"
        raise bad_request(f"{what}: {conversion}")
    if api_version != served.api_version:
        differs = f"does not match the expected API version ({served.api_version})"
        raise bad_request(f"the API version in the data ({api_version}) {differs}")
