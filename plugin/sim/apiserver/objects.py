"""The verbs on objects: what a request for one kind asks of the registry, and the object or list that answers it.

Authorized already. Watches are in `watching`, subresources beyond the status in `subresources`, how an answer is
written in `writing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import codec, fieldcheck, params, patches, refused, routes, selectors
from .asked import Asked, Found
from .catalog import Edition
from .policies import Policies
from .registry import Registry, Write

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


class Objects:
    """`policies` are asked about every write."""

    def __init__(self, registry: Registry, policies: Policies) -> None:
        self._registry, self._policies = registry, policies

    # ------------------------------------------------------------ reading

    def get(self, asked: Asked) -> Found:
        params.version_of(asked.request)
        kind, route = asked.edition.kind, asked.route
        return Found(200, asked.edition.shown(self._registry.store.get(kind.resource, route.namespace, route.name)))

    def list(self, asked: Asked) -> Found:
        wanted, store = params.List.of(asked.request), self._registry.store
        if wanted.at_least > store.version:
            raise refused.too_large_version(wanted.at_least, store.version)
        resource, namespace = asked.edition.kind.resource, asked.route.namespace
        page = store.page(resource, namespace, selection(asked), wanted.limit, wanted.proceed, wanted.exactly)
        metadata: Document = {"resourceVersion": str(page.version)}
        metadata |= {"continue": page.proceed} if page.proceed else {}
        metadata |= {"remainingItemCount": page.remaining} if page.remaining and not wanted.selects else {}
        return Found(200, list_of(asked.edition, page.items, metadata))

    # ------------------------------------------------------------ writing

    def create(self, asked: Asked) -> Found:
        kept = self._object(asked)
        return self._found(asked, 201, self._registry.create(*self._where(asked), kept, self._write(asked)))

    def update(self, asked: Asked) -> Found:
        kept, write = self._object(asked), self._write(asked)
        return self._found(asked, 200, self._registry.update(*self._where(asked), asked.route.name, kept, write))

    def patch(self, asked: Asked) -> Found:
        form, patch = codec.patch(asked.request)
        if form == "apply":
            return self._apply(asked, patch)
        if "force" in asked.request.query:
            why = "Forbidden: may not be specified for non-apply patch"
            raise params.invalid("PatchOptions", "force", "FieldValueForbidden", why)
        write = self._write(asked)

        def patched(old: Document) -> Document:
            new = patches.patched(asked.edition.view.schema, asked.edition.shown(old), form, patch)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise refused.bad_request("the patched object has no metadata")
            return self._kept(asked, new)

        return self._found(asked, 200, self._registry.change(*self._where(asked), asked.route.name, patched, write))

    def _apply(self, asked: Asked, config: Any) -> Found:
        if not isinstance(config, dict):
            raise refused.bad_request("error decoding YAML: the body is not an object")
        if not asked.text("fieldManager"):
            why = "Required value: is required for apply patch"
            raise params.invalid("PatchOptions", "fieldManager", "FieldValueRequired", why)
        check_kind(asked.edition, config)
        kept, force = self._kept(asked, config), routes.truth(asked.request, "force")
        made, new = self._registry.apply(*self._where(asked), asked.route.name, kept, self._write(asked), force)
        return self._found(asked, 201 if new else 200, made)

    def delete(self, asked: Asked) -> Found:
        wanted = params.deletion(asked.request, self._policies.admission(asked))
        edition, route, store = asked.edition, asked.route, self._registry.store
        resource = edition.kind.resource
        before = store.get(resource, route.namespace, route.name)
        last = self._registry.delete(*self._where(asked), route.name, wanted.options)
        gone = wanted.options.dry_run or store.find(resource, route.namespace, route.name) is None
        shown = resource.kind in DELETED_SHOWN and (resource.kind, edition.version) != ("DeviceTaintRule", "v1")
        if not gone or shown:
            return self._found(asked, 202 if wanted.waits and not gone else 200, last)
        details = {
            "name": route.name,
            "group": edition.group,
            "kind": resource.plural,
            "uid": before["metadata"]["uid"],
        }
        status: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return Found(200, status | {"details": {name: value for name, value in details.items() if value}})

    def delete_collection(self, asked: Asked) -> Found:
        wanted = params.deletion(asked.request, self._policies.admission(asked))
        listed, store, kind = params.List.of(asked.request), self._registry.store, asked.edition.kind
        page = store.page(kind.resource, asked.route.namespace, selection(asked), listed.limit, listed.proceed)
        gone = []
        for obj in page.items:
            namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            last = self._registry.delete(kind, namespace, name, wanted.options)
            gone.append(last if "deletionTimestamp" in last["metadata"] else obj)
        return Found(200, list_of(asked.edition, gone, {"resourceVersion": str(store.version)}))

    # ------------------------------------------------------------ what they share

    def _where(self, asked: Asked) -> tuple[Any, str]:
        return asked.edition.kind, asked.route.namespace

    def _object(self, asked: Asked) -> Document:
        obj = codec.document(asked.request)
        check_kind(asked.edition, obj)
        return self._kept(asked, obj)

    def _kept(self, asked: Asked, obj: Document) -> Document:
        """What was sent as it is kept, without the fields that its version does not have."""
        known, unknown = fieldcheck.checked(asked.edition, obj, params.validation(asked.request))
        asked.warnings.extend(unknown)
        return asked.edition.kept(known)

    def _found(self, asked: Asked, status: int, kept: Document) -> Found:
        return Found(status, asked.edition.shown(kept))

    def _write(self, asked: Asked) -> Write:
        return Write(
            manager=params.manager(asked.request),
            dry_run=params.dry_run(asked.request),
            subresource=asked.route.subresource,
            api_version=asked.edition.api_version,
            admit=self._policies.admission(asked),
        )


def selection(asked: Asked) -> Callable[[Document], bool] | None:
    """Of the objects as they are kept; selectors name fields of the core's Event, and of every version of a slice."""
    edition, route = asked.edition, asked.route
    kind = edition.kind.resource.kind
    known = ("metadata.name", *(("metadata.namespace",) if edition.kind.namespaced else ()), *SELECTABLE.get(kind, ()))
    if edition.version == "v1alpha2" and kind == "ResourceSlice":
        known = ("metadata.name", *OLD_SLICES)
    labels = selectors.labels(asked.text("labelSelector"))
    fields = selectors.fields(asked.text("fieldSelector"), known)
    if route.old_watch and route.name:
        name = route.name
        fields = selectors.both(fields, lambda obj: obj["metadata"]["name"] == name)
    return selectors.both(labels, fields)


def list_of(edition: Edition, items: list[Document], metadata: Document) -> Document:
    return {
        "kind": f"{edition.kind.resource.kind}List",
        "apiVersion": edition.api_version,
        "metadata": metadata,
        "items": [_bare(edition.shown(item)) for item in items],
    }


def _bare(obj: Document) -> Document:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def check_kind(edition: Edition, obj: Document) -> None:
    wanted = edition.kind.resource.kind
    version, kind = obj.get("apiVersion") or edition.api_version, obj.get("kind") or wanted
    if not isinstance(obj.get("metadata", {}), dict):
        text = f'{wanted} in version "{edition.version}" cannot be handled as a {wanted}: metadata is no object'
        raise refused.bad_request(text)
    if kind != wanted:
        text = f'{kind} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {wanted}: converting'
        raise refused.bad_request(f"{text} to the kind of the path is not possible")
    if version != edition.api_version:
        raise refused.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({edition.api_version})"
        )
