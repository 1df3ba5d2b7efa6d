"""The verbs on objects: what a request for one kind asks of the registry, and the object or list that answers it.

Authorized already. Watches are in `watching`, subresources beyond the status in `subresources`, how an answer is
written in `writing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import codec, fieldcheck, params, patches, refused, routes, selectors
from .catalog import Edition
from .http import Request
from .registry import Registry, Write
from .routes import Route

Document = dict[str, Any]

# Fields that a kind can be selected by, beside its name and namespace.
SELECTABLE = {
    "Event": (
        *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
        *("involvedObject.resourceVersion", "reason", "reportingComponent", "source", "type"),
    ),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "Pod": (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
        *("status.phase", "status.podIP", "status.nominatedNodeName"),
    ),
    "ResourceSlice": ("spec.driver", "spec.nodeName"),
    "Secret": ("type",),
    "Service": ("spec.clusterIP", "spec.type"),
}
OLD_SLICES = ("driverName", "nodeName")  # of v1alpha2
DELETED_SHOWN = {  # kinds whose deletion answers with the object; others answer with a Status
    *("Pod", "Service", "ServiceAccount", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"),
    *("DeviceTaintRule", "PodSchedulingContext", "ResourceClass", "ResourceClaimParameters", "ResourceClassParameters"),
    "ResourcePoolStatusRequest",
}


@dataclass(frozen=True)
class Found:
    """An answer before it is written. `document` is in the version that was asked for."""

    status: int
    document: Document
    warnings: tuple[str, ...] = ()


class Objects:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # ------------------------------------------------------------ reading

    def get(self, edition: Edition, route: Route, request: Request) -> Found:
        params.version_of(request)
        return Found(200, edition.shown(self._registry.store.get(edition.kind.resource, route.namespace, route.name)))

    def list(self, edition: Edition, route: Route, request: Request) -> Found:
        asked = params.List.of(request)
        if asked.at_least > self._registry.store.version:
            raise refused.too_large_version(asked.at_least, self._registry.store.version)
        page = self._registry.store.page(
            edition.kind.resource,
            route.namespace,
            selection(edition, route, request),
            asked.limit,
            asked.proceed,
            asked.exactly,
        )
        metadata: Document = {"resourceVersion": str(page.version)}
        metadata |= {"continue": page.proceed} if page.proceed else {}
        metadata |= {"remainingItemCount": page.remaining} if page.remaining and not asked.selects else {}
        return Found(200, list_of(edition, page.items, metadata))

    # ------------------------------------------------------------ writing

    def create(self, edition: Edition, route: Route, request: Request) -> Found:
        obj, warnings = self._object(edition, request)
        write = self._write(request, edition)
        made = self._registry.create(edition.kind, route.namespace, edition.kept(obj), write)
        return Found(201, edition.shown(made), warnings)

    def update(self, edition: Edition, route: Route, request: Request) -> Found:
        obj, warnings = self._object(edition, request)
        write = self._write(request, edition, route.subresource)
        made = self._registry.update(edition.kind, route.namespace, route.name, edition.kept(obj), write)
        return Found(200, edition.shown(made), warnings)

    def patch(self, edition: Edition, route: Route, request: Request) -> Found:
        form, patch = codec.patch(request)
        if form == "apply":
            return self._apply(edition, route, request, patch)
        if "force" in request.query:
            raise params.invalid(
                "PatchOptions", "force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch"
            )
        write = self._write(request, edition, route.subresource)
        warnings: list[str] = []

        def patched(old: Document) -> Document:
            new = _patched(edition, edition.shown(old), form, patch)
            checked, found = fieldcheck.checked(edition, new, params.validation(request))
            warnings.extend(found)
            return edition.kept(checked)

        made = self._registry.change(edition.kind, route.namespace, route.name, patched, write)
        return Found(200, edition.shown(made), tuple(warnings))

    def _apply(self, edition: Edition, route: Route, request: Request, config: Any) -> Found:
        if not isinstance(config, dict):
            raise refused.bad_request("error decoding YAML: the body is not an object")
        if not request.query.get("fieldManager", [""])[0]:
            raise params.invalid(
                "PatchOptions", "fieldManager", "FieldValueRequired", "Required value: is required for apply patch"
            )
        check_kind(edition, config)
        config, warnings = fieldcheck.checked(edition, config, params.validation(request))
        write = self._write(request, edition, route.subresource)
        force = routes.truth(request, "force")
        made, new = self._registry.apply(edition.kind, route.namespace, route.name, edition.kept(config), write, force)
        return Found(201 if new else 200, edition.shown(made), warnings)

    def delete(self, edition: Edition, route: Route, request: Request) -> Found:
        asked = params.deletion(request)
        kind = edition.kind
        before = self._registry.store.get(kind.resource, route.namespace, route.name)
        last = self._registry.delete(kind, route.namespace, route.name, asked.options)
        gone = asked.options.dry_run or self._registry.store.find(kind.resource, route.namespace, route.name) is None
        if not gone or kind.resource.kind in DELETED_SHOWN:
            return Found(202 if asked.waits and not gone else 200, edition.shown(last))
        details = {"name": route.name, "group": edition.group, "kind": kind.resource.plural}
        details |= {"uid": before["metadata"]["uid"]}
        status: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return Found(200, status | {"details": {name: value for name, value in details.items() if value}})

    def delete_collection(self, edition: Edition, route: Route, request: Request) -> Found:
        asked, listed = params.deletion(request), params.List.of(request)
        store = self._registry.store
        page = store.page(
            edition.kind.resource, route.namespace, selection(edition, route, request), listed.limit, listed.proceed
        )
        gone = []
        for obj in page.items:
            metadata = obj["metadata"]
            gone.append(
                self._registry.delete(edition.kind, metadata.get("namespace", ""), metadata["name"], asked.options)
            )
        return Found(200, list_of(edition, gone, {"resourceVersion": str(store.version)}))

    # ------------------------------------------------------------ what they share

    def _object(self, edition: Edition, request: Request) -> tuple[Document, tuple[str, ...]]:
        obj = codec.document(request)
        check_kind(edition, obj)
        return fieldcheck.checked(edition, obj, params.validation(request))

    def _write(self, request: Request, edition: Edition, subresource: str = "") -> Write:
        return Write(
            manager=params.manager(request),
            dry_run=params.dry_run(request),
            subresource=subresource,
            api_version=edition.api_version,
        )


def _patched(edition: Edition, old: Document, form: str, patch: Any) -> Document:
    new = patches.patched(edition.view.schema, old, form, patch)
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise refused.bad_request("the patched object has no metadata")
    return new


def selection(edition: Edition, route: Route, request: Request) -> Callable[[Document], bool] | None:
    """Of the objects as they are kept; selectors name fields of the core's Event, and of every version of a slice."""
    kind = edition.kind.resource.kind
    known = ("metadata.name", *(("metadata.namespace",) if edition.kind.namespaced else ()), *SELECTABLE.get(kind, ()))
    if edition.version == "v1alpha2" and kind == "ResourceSlice":
        known = ("metadata.name", *OLD_SLICES)
    labels = selectors.labels(routes.text(request, "labelSelector"))
    fields = selectors.fields(routes.text(request, "fieldSelector"), known)
    if route.old_watch and route.name:
        name = route.name
        fields = selectors.both(fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(labels, fields)


def list_of(edition: Edition, items: list[Document], metadata: Document) -> Document:
    """Items of a typed list do not say what they are."""
    return {
        "kind": f"{edition.kind.resource.kind}List",
        "apiVersion": edition.api_version,
        "metadata": metadata,
        "items": [edition.shown(item) for item in items],
    }


def check_kind(edition: Edition, obj: Document) -> None:
    wanted = edition.kind.resource.kind
    version, kind = obj.get("apiVersion") or edition.api_version, obj.get("kind") or wanted
    if not isinstance(obj.get("metadata", {}), dict):
        raise refused.bad_request(
            f'{wanted} in version "{edition.version}" cannot be handled as a {wanted}: metadata is no object'
        )
    if kind != wanted:
        text = f'{kind} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {wanted}: converting'
        raise refused.bad_request(f"{text} to the kind of the path is not possible")
    if version != edition.api_version:
        raise refused.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({edition.api_version})"
        )
