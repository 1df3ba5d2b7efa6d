"""What may be done with an object of any kind: names, versions, finalizers, the status apart from
the rest, owners.

Between HTTP and the store. Time, uids and random letters are given, so that the same calls make the
same objects. What one kind allows beyond that (its own validation) is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from .... import timestamps
from ....api.document import Document
from ..rules import strategy
from ..types import status_errors
from ..types.kind import Kind
from ..types.options import DeleteOptions, WriteOptions
from ..types.resource import NAMESPACES, GroupResource
from ..types.status_errors import Cause
from . import managed_fields, patches
from .store import Store

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
BLIND = "Invalid value: 0: must be specified for an update"


class Registry:
    """`release` says whose rules hold."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], str],
        new_uid: Callable[[], str],
        letters: Callable[[], str],
        release: str = "1.37",
    ) -> None:
        self.store, self.release = store, release
        self._now, self._new_uid, self._letters = now, new_uid, letters

    # ------------------------------------------------------------ create, update

    def create(self, kind: Kind, namespace: str, obj: Document, write: WriteOptions) -> Document:
        new = self._prepared(kind, namespace, obj, write)
        empty = {"apiVersion": new["apiVersion"], "kind": new["kind"]} | self._strategy(kind).empty
        writer = _writer(kind, write, "Update")
        return self._begun(
            kind, managed_fields.update(kind.schema, empty, new, writer, self._now()), write
        )

    def _prepared(self, kind: Kind, namespace: str, obj: Document, write: WriteOptions) -> Document:
        """The object as it begins: with a name, what the system gives it, and without a status."""
        metadata = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise status_errors.StatusError(
                500, "", "resourceVersion should not be set on objects to be created"
            )
        _check_namespace(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + self._letters()
        for name in (
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "selfLink",
        ):
            metadata.pop(name, None)
        metadata |= {"uid": self._new_uid(), "creationTimestamp": self._now()}
        metadata |= {"generation": 1} if kind.generation else {}
        begun = _half(kind, _of_kind(kind, obj), "") | {"metadata": metadata}
        return self._strategy(kind).with_defaults(begun, self._context(write))

    def _begun(self, kind: Kind, new: Document, write: WriteOptions) -> Document:
        """What is not the writer's is added after it is known what is."""
        rules, metadata, context = self._strategy(kind), new["metadata"], self._context(write)
        new = rules.prepare_for_create(new, context)
        if causes := rules.validate(new, context):
            raise status_errors.invalid(kind.resource, metadata.get("name", ""), causes)
        write.validate_admission(None, new)
        if self.store.find(kind.resource, metadata.get("namespace", ""), metadata["name"]):
            raise status_errors.already_exists(kind.resource, metadata["name"])
        return new if write.dry_run else self.store.create(kind.resource, new)

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Document, write: WriteOptions
    ) -> Document:
        _check_same_name((obj.get("metadata") or {}).get("name") or name, name)
        old = self.store.get(kind.resource, namespace, name)
        if not (obj.get("metadata") or {}).get("resourceVersion") and not self._strategy(
            kind
        ).allows_unconditional_update(write.api_version):
            cause = Cause("FieldValueInvalid", BLIND, "metadata.resourceVersion")
            about = GroupResource(kind.resource.plural, kind.resource.group, kind.resource.plural)
            raise status_errors.invalid(about, name, [cause])
        return self._update(kind, old, obj, write, _writer(kind, write, "Update"))

    def _update(
        self,
        kind: Kind,
        old: Document,
        obj: Document,
        write: WriteOptions,
        writer: managed_fields.Manager | None,
    ) -> Document:
        """`writer` is None where the owners of the fields are already right."""
        metadata = dict(obj.get("metadata") or {})
        before = old["metadata"]
        name = before["name"]
        _check_same_name(metadata.setdefault("name", name), name)
        _check_namespace(kind, before.get("namespace", ""), metadata)
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise status_errors.conflict(
                kind.resource, name, _other_uid(kind, before, metadata["uid"])
            )
        if metadata.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise status_errors.conflict(kind.resource, name, why)
        rules, context = self._strategy(kind), self._context(write)
        new = self._new_content(kind, old, _of_kind(kind, obj) | {"metadata": metadata}, write)
        new = rules.with_defaults(new, context)
        if writer:
            new = self._owned(kind, old, new, metadata, writer)
        new = rules.prepare_for_update(new, old, write.subresource, context)
        if causes := rules.validate_update(new, old, obj, write.subresource, context):
            raise status_errors.invalid(kind.resource, name, causes)
        if kind.generation and new.get("spec") != old.get("spec"):
            new = new | {
                "metadata": new["metadata"] | {"generation": before.get("generation", 0) + 1}
            }
        write.validate_admission(old, new)
        if _timeless(new) == _timeless(old):
            new = old  # who changes nothing is not remembered for when he did not
        if write.dry_run:
            return new
        if "deletionTimestamp" in before and not _held(new) and _grace_is_over(before):
            self.store.delete(kind.resource, old)
            return new
        return self.store.replace(kind.resource, old, new)

    def _owned(
        self,
        kind: Kind,
        old: Document,
        new: Document,
        metadata: Document,
        writer: managed_fields.Manager,
    ) -> Document:
        """`metadata` is as the writer said it: with a status, old releases took it for his although
        it was not kept.
        """
        if writer.subresource != "status" or not self._strategy(kind).status_takes_metadata:
            return managed_fields.update(kind.schema, old, new, writer, self._now())
        said = managed_fields.update(
            kind.schema, old, new | {"metadata": metadata}, writer, self._now()
        )["metadata"]
        entries = {"managedFields": said["managedFields"]} if "managedFields" in said else {}
        rest = {part: value for part, value in new["metadata"].items() if part != "managedFields"}
        return new | {"metadata": rest | entries}

    def _new_content(
        self, kind: Kind, old: Document, new: Document, write: WriteOptions
    ) -> Document:
        """The new object with what the system alone may change, and with the other half of a kind
        with a status.
        """
        before = old["metadata"]
        if write.subresource == "status":
            entries = (
                {"managedFields": new["metadata"]["managedFields"]}
                if "managedFields" in new["metadata"]
                else {}
            )
            rest = {name: value for name, value in old.items() if name != "status"} | {
                "metadata": before | entries
            }
            return rest | ({"status": new["status"]} if "status" in new else {})
        if kind.resource.kind == "Namespace" and write.subresource != "finalize":
            new = new | {"spec": old.get("spec") or {}}
        metadata = dict(new["metadata"])
        for name in (
            *("uid", "creationTimestamp", "generation", "resourceVersion", "namespace", "selfLink"),
            *("deletionTimestamp", "deletionGracePeriodSeconds"),
        ):
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        new = new | {"metadata": metadata}
        if kind.status:
            new.pop("status", None)
            new |= {"status": old["status"]} if "status" in old else {}
        return new

    # ------------------------------------------------------------ patch, apply

    def patch(
        self, kind: Kind, namespace: str, name: str, form: str, patch: Any, write: WriteOptions
    ) -> Document:
        """`form` is json, merge or strategic."""

        def patched(old: Document) -> Document:
            new: Document = patches.apply_patch(kind.schema, old, form, patch)
            return new

        return self.change(kind, namespace, name, patched, write)

    def change(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        changed: Callable[[Document], Document],
        write: WriteOptions,
    ) -> Document:
        """The object as `changed` makes it of what is there."""
        old = self.store.get(kind.resource, namespace, name)
        return self._update(kind, old, changed(old), write, _writer(kind, write, "Update"))

    def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Document,
        write: WriteOptions,
        force: bool,
    ) -> tuple[Document, bool]:
        """The object, and whether it is new."""
        metadata = config.get("metadata") or {}
        if metadata.get("managedFields"):
            raise status_errors.bad_request("metadata.managedFields must be nil")
        said = metadata.get("name", name)
        config = _of_kind(kind, config) | {"metadata": metadata | {"name": name}}
        writer = _writer(kind, write, "Apply")
        old = self.store.find(kind.resource, namespace, name)
        if old is None:
            if write.subresource:
                raise status_errors.not_found(kind.resource, name)
            if uid := metadata.get("uid"):
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise status_errors.conflict(kind.resource, name, why)
            empty = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
            new = managed_fields.apply(
                kind.schema, empty, _half(kind, config, ""), writer, force, self._now()
            )
            _check_same_name(said, name)
            return self._begun(kind, self._prepared(kind, namespace, new, write), write), True
        asked = _half(kind, config, write.subresource)
        if write.subresource and self._strategy(kind).status_takes_metadata:
            asked |= {"metadata": config["metadata"]}
        new = managed_fields.apply(kind.schema, old, asked, writer, force, self._now())
        _check_same_name(said, name)
        return self._update(kind, old, new, write, None), False

    # ------------------------------------------------------------ rules

    def warnings(self, kind: Kind, obj: Document) -> list[str]:
        return self._strategy(kind).warnings(obj)

    def _strategy(self, kind: Kind) -> strategy.Strategy:
        return strategy.of(kind.resource, kind.version, self.release)

    def _context(self, write: WriteOptions) -> strategy.Context:
        version = write.api_version.rpartition("/")[2]
        return strategy.Context(
            self._now(), version, lambda name: self.store.find(NAMESPACES, "", name)
        )

    # ------------------------------------------------------------ delete

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Document:
        """The object, gone or waiting for its finalizers or for its kubelet."""
        old = self.store.get(kind.resource, namespace, name)
        before = old["metadata"]
        _check_preconditions(kind, before, options)
        options.validate_admission(old, None)
        finalizers = [
            entry for entry in before.get("finalizers") or () if entry not in (ORPHAN, FOREGROUND)
        ]
        finalizers += {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(
            options.propagation_policy, []
        )
        if options.dry_run:
            return old
        grace = _grace(kind, old, options)
        if not finalizers and not grace and not _held(old | {"metadata": {}}):
            last = self.store.delete(kind.resource, old)
            at_once = {"deletionGracePeriodSeconds": 0} if "deletionTimestamp" in before else {}
            return last | {"metadata": last["metadata"] | at_once}
        metadata = {part: value for part, value in before.items() if part != "finalizers"}
        metadata |= {"finalizers": finalizers} if finalizers else {}
        if "deletionTimestamp" not in metadata:
            metadata |= {"deletionTimestamp": _later(self._now(), grace)}
            metadata |= (
                {"deletionGracePeriodSeconds": grace} if kind.resource.kind != "Namespace" else {}
            )
            metadata |= (
                {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
            )
        elif grace < metadata.get("deletionGracePeriodSeconds", 0):
            sooner = grace - metadata["deletionGracePeriodSeconds"]
            metadata["deletionTimestamp"] = _later(metadata["deletionTimestamp"], sooner)
            metadata["deletionGracePeriodSeconds"] = grace
        phase = {"status": {"phase": "Terminating"}} if kind.resource.kind == "Namespace" else {}
        return self.store.replace(kind.resource, old, old | phase | {"metadata": metadata})


def _held(obj: Document) -> bool:
    """Somebody has to do something before it may go. A namespace has its contents beside its
    finalizers.
    """
    contents = obj["kind"] == "Namespace" and (obj.get("spec") or {}).get("finalizers")
    return bool(obj["metadata"].get("finalizers") or contents)


def _writer(kind: Kind, write: WriteOptions, operation: str) -> managed_fields.Manager:
    return managed_fields.Manager(
        write.field_manager, operation, write.api_version or kind.api_version, write.subresource
    )


def _grace(kind: Kind, old: Document, options: DeleteOptions) -> int:
    """Seconds until it goes: a pod that is on a node goes when its kubelet says that it has ended."""
    spec, status = old.get("spec") or {}, old.get("status") or {}
    if (
        kind.resource.kind != "Pod"
        or not spec.get("nodeName")
        or status.get("phase") in ("Succeeded", "Failed")
    ):
        return 0
    asked = (
        options.grace_period_seconds
        if options.grace_period_seconds is not None
        else spec.get("terminationGracePeriodSeconds", 30)
    )
    asked = 1 if asked < 0 else int(asked)
    said = old["metadata"].get("deletionGracePeriodSeconds")
    return asked if said is None else min(asked, int(said))


def _later(time: str, seconds: int) -> str:
    if not seconds:
        return time
    return timestamps.rfc3339(datetime.fromisoformat(time).timestamp() + seconds)


def _of_kind(kind: Kind, obj: Document) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.resource.kind} | {
        name: value for name, value in obj.items() if name not in ("apiVersion", "kind")
    }


def _half(kind: Kind, obj: Document, subresource: str) -> Document:
    """What a request may write of the object: the status with what identifies it, or the rest."""
    if not subresource:
        return {part: value for part, value in obj.items() if part != "status" or not kind.status}
    metadata = obj["metadata"]
    identity = {
        part: metadata[part]
        for part in ("name", "namespace", "uid", "resourceVersion")
        if part in metadata
    }
    half = {part: obj[part] for part in ("apiVersion", "kind", "status") if part in obj}
    return half | {"metadata": identity}


def _check_namespace(kind: Kind, namespace: str, metadata: Document) -> None:
    if not kind.namespaced:
        if metadata.get("namespace"):
            raise status_errors.bad_request(
                "namespace should not be set on a cluster-scoped object"
            )
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        raise status_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _timeless(obj: Document) -> Document:
    """Without when its fields were written."""
    metadata = dict(obj["metadata"])
    entries = metadata.pop("managedFields", ())
    metadata.pop("resourceVersion", None)
    owners = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    return obj | {"metadata": metadata | {"managedFields": owners}}


def _check_same_name(name: str, wanted: str) -> None:
    if name != wanted:
        raise status_errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({wanted})"
        )


def _other_uid(kind: Kind, before: Document, uid: str) -> str:
    key = "/".join(filter(None, (kind.resource.plural, before.get("namespace"), before["name"])))
    why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
    return f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"


def _check_preconditions(kind: Kind, metadata: Document, options: DeleteOptions) -> None:
    asked = GroupResource(kind.resource.kind, kind.resource.group, kind.resource.kind)
    for what, wanted, found, perhaps in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if wanted is not None and wanted != found:
            why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
            raise status_errors.conflict(
                asked, metadata["name"], f"{why} The object might have been {perhaps}"
            )


def _grace_is_over(metadata: Document) -> bool:
    return not metadata.get("deletionGracePeriodSeconds")
