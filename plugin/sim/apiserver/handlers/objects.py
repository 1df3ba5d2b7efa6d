"""The verbs on objects: what a request for one kind asks of the registry, and the object or list
that answers it.

Authorized already. Watches are in `watching`, subresources beyond the status in `subresources`, how
an answer is written in `writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....api.document import Document
from ..catalog import EVENTS, ServedVersion
from ..storage import patches
from ..storage.registry import Registry
from ..types import selectors, status_errors
from ..types.options import ValidateAdmission, WriteOptions
from ..wire import codec, query, strict_fields
from ..wire.resource_request import ResourceRequest, Result

# Fields that a kind can be selected by, beside its name and namespace.
SELECTABLE = {
    "Event": (
        *(
            f"involvedObject.{part}"
            for part in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
        ),
        *("involvedObject.resourceVersion", "reason", "reportingComponent", "source", "type"),
    ),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "Pod": (
        *(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
        ),
        *("status.phase", "status.podIP", "status.nominatedNodeName"),
    ),
    "ResourceSlice": ("spec.driver", "spec.nodeName"),
    "Secret": ("type",),
    "Service": ("spec.clusterIP", "spec.type"),
}
OLD_SLICES = ("driverName", "nodeName")  # of v1alpha2
DELETED_SHOWN = {  # kinds whose deletion answers with the object; others answer with a Status
    *(
        "Pod",
        "Service",
        "ServiceAccount",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "DeviceClass",
    ),
    *(
        "DeviceTaintRule",
        "PodSchedulingContext",
        "ResourceClass",
        "ResourceClaimParameters",
        "ResourceClassParameters",
    ),
    "ResourcePoolStatusRequest",
}


class Objects:
    """`admission` gives what is asked about every write of a request."""

    def __init__(
        self, registry: Registry, admission: Callable[[ResourceRequest], ValidateAdmission]
    ) -> None:
        self._registry, self._admission = registry, admission

    # ------------------------------------------------------------ reading

    def get(self, request: ResourceRequest) -> Result:
        wanted = query.version_of(request.http)
        if wanted is not None and wanted > self._registry.store.resource_version:
            raise status_errors.too_large_version(wanted, self._registry.store.resource_version)
        kind, info = request.served.kind, request.info
        return Result(
            200,
            request.served.from_storage(
                self._registry.store.get(kind.resource, info.namespace, info.name)
            ),
        )

    def list(self, request: ResourceRequest) -> Result:
        wanted, store = query.List.of(request.http), self._registry.store
        if wanted.at_least > store.resource_version:
            raise status_errors.too_large_version(wanted.at_least, store.resource_version)
        resource, namespace = request.served.kind.resource, request.info.namespace
        page = store.page(
            resource,
            namespace,
            selection(request),
            wanted.limit,
            wanted.continue_token,
            wanted.exactly,
        )
        metadata: Document = {"resourceVersion": str(page.resource_version)}
        metadata |= {"continue": page.continue_token} if page.continue_token else {}
        metadata |= (
            {"remainingItemCount": page.remaining_item_count}
            if page.remaining_item_count and not wanted.selects
            else {}
        )
        return Result(200, list_of(request.served, page.items, metadata))

    # ------------------------------------------------------------ writing

    def create(self, request: ResourceRequest) -> Result:
        kept = self._object(request)
        return self._made(
            request, 201, self._registry.create(*self._where(request), kept, self._write(request))
        )

    def update(self, request: ResourceRequest) -> Result:
        kept, write = self._object(request), self._write(request)
        return self._made(
            request,
            200,
            self._registry.update(*self._where(request), request.info.name, kept, write),
        )

    def patch(self, request: ResourceRequest) -> Result:
        form, patch = codec.patch(request.http)
        if form == "apply":
            return self._apply(request, patch)
        if "force" in request.http.query:
            why = "Forbidden: may not be specified for non-apply patch"
            raise query.invalid("PatchOptions", "force", "FieldValueForbidden", why)
        write = self._write(request)

        def patched(old: Document) -> Document:
            new = patches.apply_patch(
                request.served.schema, request.served.from_storage(old), form, patch
            )
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise status_errors.bad_request("the patched object has no metadata")
            try:
                return self._kept(request, new)
            except strict_fields.WrongType as error:
                raise error.of_patch(new) from error

        return self._made(
            request,
            200,
            self._registry.change(*self._where(request), request.info.name, patched, write),
        )

    def _apply(self, request: ResourceRequest, config: Any) -> Result:
        if not isinstance(config, dict):
            raise status_errors.bad_request("error decoding YAML: the body is not an object")
        if not request.param("fieldManager"):
            why = "Required value: is required for apply patch"
            raise query.invalid("PatchOptions", "fieldManager", "FieldValueRequired", why)
        check_applied(request.served, config)
        kept, force = self._kept(request, config, applied=True), request.http.flag("force")
        made, new = self._registry.apply(
            *self._where(request), request.info.name, kept, self._write(request), force
        )
        return self._made(request, 201 if new else 200, made)

    def delete(self, request: ResourceRequest) -> Result:
        wanted = query.deletion(request.http, self._admission(request))
        served, info, store = request.served, request.info, self._registry.store
        resource = served.kind.resource
        before = store.get(resource, info.namespace, info.name)
        last = self._registry.delete(*self._where(request), info.name, wanted.options)
        gone = wanted.options.dry_run or store.find(resource, info.namespace, info.name) is None
        shown = resource.kind in DELETED_SHOWN and (resource.kind, served.version) != (
            "DeviceTaintRule",
            "v1",
        )
        if not gone or shown:
            return self._found(request, 202 if wanted.waits and not gone else 200, last)
        details = {
            "name": info.name,
            "group": served.group,
            "kind": resource.plural,
            "uid": before["metadata"]["uid"],
        }
        status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
        }
        return Result(
            200, status | {"details": {name: value for name, value in details.items() if value}}
        )

    def delete_collection(self, request: ResourceRequest) -> Result:
        wanted = query.deletion(request.http, self._admission(request))
        listed, store, kind = query.List.of(request.http), self._registry.store, request.served.kind
        page = store.page(
            kind.resource,
            request.info.namespace,
            selection(request),
            listed.limit,
            listed.continue_token,
        )
        gone = []
        for obj in page.items:
            namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            last = self._registry.delete(kind, namespace, name, wanted.options)
            gone.append(last if "deletionTimestamp" in last["metadata"] else obj)
        return Result(
            200, list_of(request.served, gone, {"resourceVersion": str(store.resource_version)})
        )

    # ------------------------------------------------------------ what they share

    def _where(self, request: ResourceRequest) -> tuple[Any, str]:
        return request.served.kind, request.info.namespace

    def _object(self, request: ResourceRequest) -> Document:
        obj = codec.document(request.http, request.served.kind.resource.kind)
        check_kind(request.served, obj)
        validation = query.validation(request.http)
        twice = codec.duplicates(request.http) if validation != "Ignore" else []
        return self._kept(request, obj, twice)

    def _kept(
        self,
        request: ResourceRequest,
        obj: Document,
        twice: Sequence[str] = (),
        applied: bool = False,
    ) -> Document:
        """What was sent as it is kept, without the fields that its version does not have."""
        validation = "Apply" if applied else query.validation(request.http)
        known, problems = strict_fields.checked(request.served, obj, validation, twice)
        request.warnings.extend(problems)
        return request.served.to_storage(known)

    def _made(self, request: ResourceRequest, status: int, kept: Document) -> Result:
        """What was written, with what its writer should hear of it."""
        request.warnings.extend(self._registry.warnings(request.served.kind, kept))
        return self._found(request, status, kept)

    def _found(self, request: ResourceRequest, status: int, kept: Document) -> Result:
        return Result(status, request.served.from_storage(kept))

    def _write(self, request: ResourceRequest) -> WriteOptions:
        return WriteOptions(
            field_manager=query.field_manager(request.http),
            dry_run=query.dry_run(request.http),
            subresource=request.info.subresource,
            api_version=request.served.api_version,
            validate_admission=self._admission(request),
        )


def selection(request: ResourceRequest) -> Callable[[Document], bool] | None:
    """Of the objects as they are kept; selectors name fields of the core's Event, and of every
    version of a slice.
    """
    served, info = request.served, request.info
    kind = served.kind.resource.kind
    known = (
        "metadata.name",
        *(("metadata.namespace",) if served.kind.namespaced else ()),
        *SELECTABLE.get(kind, ()),
    )
    if served.version == "v1alpha2" and kind == "ResourceSlice":
        known = ("metadata.name", *OLD_SLICES)
    wanted = request.param("fieldSelector")
    if served.group == EVENTS:  # selects by its own names for the same fields
        wanted = wanted.replace("regarding.", "involvedObject.").replace(
            "reportingController", "reportingComponent"
        )
    labels = selectors.labels(request.param("labelSelector"))
    fields = selectors.fields(wanted, known, _unknown_field(served))
    if info.deprecated_watch and info.name:
        name = info.name
        fields = selectors.both(fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(labels, fields)


def _unknown_field(served: ServedVersion) -> str:
    """How a selection by a field that cannot be asked for is refused: kinds of the core have their
    own words.
    """
    if served.kind.resource.kind == "ResourceSlice":
        return f"field label not supported for {served.api_version}, Kind=ResourceSlice: {{}}"
    if served.kind.resource.kind in SELECTABLE:
        return selectors.UNKNOWN
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def list_of(served: ServedVersion, items: list[Document], metadata: Document) -> Document:
    return {
        "kind": f"{served.kind.resource.kind}List",
        "apiVersion": served.api_version,
        "metadata": metadata,
        "items": [_bare(served.from_storage(item)) for item in items],
    }


def _bare(obj: Document) -> Document:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def check_applied(served: ServedVersion, config: Document) -> None:
    """A configuration has to say what it is."""
    version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if (version, kind) != (served.api_version, served.kind.resource.kind):
        said = version if "/" in version else f"/{version}"
        raise status_errors.bad_request(f"invalid object type: {said}, Kind={kind}")


def check_kind(served: ServedVersion, obj: Document) -> None:
    wanted = served.kind.resource.kind
    version, kind = obj.get("apiVersion") or served.api_version, obj.get("kind") or wanted
    if not isinstance(obj.get("metadata", {}), dict):
        text = f'{wanted} in version "{served.version}" cannot be handled as a {wanted}: metadata is no object'
        raise status_errors.bad_request(text)
    if kind != wanted:
        short = str(version).rpartition("/")[2]
        package = (served.group or "core").partition(".")[0]
        text = f'{kind} in version "{short}" cannot be handled as a {wanted}: converting ({short}.{kind})'
        raise status_errors.bad_request(f"{text} to ({package}.{wanted}): unknown conversion")
    if version != served.api_version:
        raise status_errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({served.api_version})"
        )
