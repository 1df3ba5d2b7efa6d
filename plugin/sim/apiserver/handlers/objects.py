"""The verbs on objects: what a request for one kind asks of the registry, and the object or list
that answers it.

Authorized already. Watches are in `watching`, subresources beyond the status in `subresources`, how
an answer is written in `writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....api.document import Document
from ..catalog import EVENTS, Edition
from ..storage import patches
from ..storage.registry import Registry
from ..types import selectors, status_errors
from ..types.options import Admit, WriteOptions
from ..wire import codec, query, routes, strict_fields
from ..wire.request_info import RequestInfo, Result

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

    def __init__(self, registry: Registry, admission: Callable[[RequestInfo], Admit]) -> None:
        self._registry, self._admission = registry, admission

    # ------------------------------------------------------------ reading

    def get(self, asked: RequestInfo) -> Result:
        wanted = query.version_of(asked.request)
        if wanted is not None and wanted > self._registry.store.version:
            raise status_errors.too_large_version(wanted, self._registry.store.version)
        kind, route = asked.edition.kind, asked.route
        return Result(
            200,
            asked.edition.shown(
                self._registry.store.get(kind.resource, route.namespace, route.name)
            ),
        )

    def list(self, asked: RequestInfo) -> Result:
        wanted, store = query.List.of(asked.request), self._registry.store
        if wanted.at_least > store.version:
            raise status_errors.too_large_version(wanted.at_least, store.version)
        resource, namespace = asked.edition.kind.resource, asked.route.namespace
        page = store.page(
            resource, namespace, selection(asked), wanted.limit, wanted.proceed, wanted.exactly
        )
        metadata: Document = {"resourceVersion": str(page.version)}
        metadata |= {"continue": page.proceed} if page.proceed else {}
        metadata |= (
            {"remainingItemCount": page.remaining} if page.remaining and not wanted.selects else {}
        )
        return Result(200, list_of(asked.edition, page.items, metadata))

    # ------------------------------------------------------------ writing

    def create(self, asked: RequestInfo) -> Result:
        kept = self._object(asked)
        return self._made(
            asked, 201, self._registry.create(*self._where(asked), kept, self._write(asked))
        )

    def update(self, asked: RequestInfo) -> Result:
        kept, write = self._object(asked), self._write(asked)
        return self._made(
            asked, 200, self._registry.update(*self._where(asked), asked.route.name, kept, write)
        )

    def patch(self, asked: RequestInfo) -> Result:
        form, patch = codec.patch(asked.request)
        if form == "apply":
            return self._apply(asked, patch)
        if "force" in asked.request.query:
            why = "Forbidden: may not be specified for non-apply patch"
            raise query.invalid("PatchOptions", "force", "FieldValueForbidden", why)
        write = self._write(asked)

        def patched(old: Document) -> Document:
            new = patches.patched(asked.edition.view.schema, asked.edition.shown(old), form, patch)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise status_errors.bad_request("the patched object has no metadata")
            try:
                return self._kept(asked, new)
            except strict_fields.WrongType as error:
                raise error.of_patch(new) from error

        return self._made(
            asked, 200, self._registry.change(*self._where(asked), asked.route.name, patched, write)
        )

    def _apply(self, asked: RequestInfo, config: Any) -> Result:
        if not isinstance(config, dict):
            raise status_errors.bad_request("error decoding YAML: the body is not an object")
        if not asked.text("fieldManager"):
            why = "Required value: is required for apply patch"
            raise query.invalid("PatchOptions", "fieldManager", "FieldValueRequired", why)
        check_applied(asked.edition, config)
        kept, force = self._kept(asked, config, applied=True), routes.truth(asked.request, "force")
        made, new = self._registry.apply(
            *self._where(asked), asked.route.name, kept, self._write(asked), force
        )
        return self._made(asked, 201 if new else 200, made)

    def delete(self, asked: RequestInfo) -> Result:
        wanted = query.deletion(asked.request, self._admission(asked))
        edition, route, store = asked.edition, asked.route, self._registry.store
        resource = edition.kind.resource
        before = store.get(resource, route.namespace, route.name)
        last = self._registry.delete(*self._where(asked), route.name, wanted.options)
        gone = wanted.options.dry_run or store.find(resource, route.namespace, route.name) is None
        shown = resource.kind in DELETED_SHOWN and (resource.kind, edition.version) != (
            "DeviceTaintRule",
            "v1",
        )
        if not gone or shown:
            return self._found(asked, 202 if wanted.waits and not gone else 200, last)
        details = {
            "name": route.name,
            "group": edition.group,
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

    def delete_collection(self, asked: RequestInfo) -> Result:
        wanted = query.deletion(asked.request, self._admission(asked))
        listed, store, kind = query.List.of(asked.request), self._registry.store, asked.edition.kind
        page = store.page(
            kind.resource, asked.route.namespace, selection(asked), listed.limit, listed.proceed
        )
        gone = []
        for obj in page.items:
            namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            last = self._registry.delete(kind, namespace, name, wanted.options)
            gone.append(last if "deletionTimestamp" in last["metadata"] else obj)
        return Result(200, list_of(asked.edition, gone, {"resourceVersion": str(store.version)}))

    # ------------------------------------------------------------ what they share

    def _where(self, asked: RequestInfo) -> tuple[Any, str]:
        return asked.edition.kind, asked.route.namespace

    def _object(self, asked: RequestInfo) -> Document:
        obj = codec.document(asked.request, asked.edition.kind.resource.kind)
        check_kind(asked.edition, obj)
        validation = query.validation(asked.request)
        twice = codec.duplicates(asked.request) if validation != "Ignore" else []
        return self._kept(asked, obj, twice)

    def _kept(
        self, asked: RequestInfo, obj: Document, twice: Sequence[str] = (), applied: bool = False
    ) -> Document:
        """What was sent as it is kept, without the fields that its version does not have."""
        validation = "Apply" if applied else query.validation(asked.request)
        known, problems = strict_fields.checked(asked.edition, obj, validation, twice)
        asked.warnings.extend(problems)
        return asked.edition.kept(known)

    def _made(self, asked: RequestInfo, status: int, kept: Document) -> Result:
        """What was written, with what its writer should hear of it."""
        asked.warnings.extend(self._registry.warnings(asked.edition.kind, kept))
        return self._found(asked, status, kept)

    def _found(self, asked: RequestInfo, status: int, kept: Document) -> Result:
        return Result(status, asked.edition.shown(kept))

    def _write(self, asked: RequestInfo) -> WriteOptions:
        return WriteOptions(
            manager=query.manager(asked.request),
            dry_run=query.dry_run(asked.request),
            subresource=asked.route.subresource,
            api_version=asked.edition.api_version,
            admit=self._admission(asked),
        )


def selection(asked: RequestInfo) -> Callable[[Document], bool] | None:
    """Of the objects as they are kept; selectors name fields of the core's Event, and of every
    version of a slice.
    """
    edition, route = asked.edition, asked.route
    kind = edition.kind.resource.kind
    known = (
        "metadata.name",
        *(("metadata.namespace",) if edition.kind.namespaced else ()),
        *SELECTABLE.get(kind, ()),
    )
    if edition.version == "v1alpha2" and kind == "ResourceSlice":
        known = ("metadata.name", *OLD_SLICES)
    wanted = asked.text("fieldSelector")
    if edition.group == EVENTS:  # selects by its own names for the same fields
        wanted = wanted.replace("regarding.", "involvedObject.").replace(
            "reportingController", "reportingComponent"
        )
    labels = selectors.labels(asked.text("labelSelector"))
    fields = selectors.fields(wanted, known, _unknown_field(edition))
    if route.old_watch and route.name:
        name = route.name
        fields = selectors.both(fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(labels, fields)


def _unknown_field(edition: Edition) -> str:
    """How a selection by a field that cannot be asked for is refused: kinds of the core have their
    own words.
    """
    if edition.kind.resource.kind == "ResourceSlice":
        return f"field label not supported for {edition.api_version}, Kind=ResourceSlice: {{}}"
    if edition.kind.resource.kind in SELECTABLE:
        return selectors.UNKNOWN
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def list_of(edition: Edition, items: list[Document], metadata: Document) -> Document:
    return {
        "kind": f"{edition.kind.resource.kind}List",
        "apiVersion": edition.api_version,
        "metadata": metadata,
        "items": [_bare(edition.shown(item)) for item in items],
    }


def _bare(obj: Document) -> Document:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def check_applied(edition: Edition, config: Document) -> None:
    """A configuration has to say what it is."""
    version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if (version, kind) != (edition.api_version, edition.kind.resource.kind):
        said = version if "/" in version else f"/{version}"
        raise status_errors.bad_request(f"invalid object type: {said}, Kind={kind}")


def check_kind(edition: Edition, obj: Document) -> None:
    wanted = edition.kind.resource.kind
    version, kind = obj.get("apiVersion") or edition.api_version, obj.get("kind") or wanted
    if not isinstance(obj.get("metadata", {}), dict):
        text = f'{wanted} in version "{edition.version}" cannot be handled as a {wanted}: metadata is no object'
        raise status_errors.bad_request(text)
    if kind != wanted:
        short = str(version).rpartition("/")[2]
        package = (edition.group or "core").partition(".")[0]
        text = f'{kind} in version "{short}" cannot be handled as a {wanted}: converting ({short}.{kind})'
        raise status_errors.bad_request(f"{text} to ({package}.{wanted}): unknown conversion")
    if version != edition.api_version:
        raise status_errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({edition.api_version})"
        )
