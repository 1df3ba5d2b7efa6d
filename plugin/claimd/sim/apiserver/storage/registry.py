"""The operations on an object of any kind: create, update, apply and delete.

Between HTTP and the store, the registry has the rules that all kinds share: names, versions, the
status as a separate part, owners of fields, and finalizers. The rules of a single kind are its
strategy. Time, uids and the letters of generated names are parameters, so the same calls make the
same objects.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from claimd.kubernetes.api.document import Document

from ..custom import strategies
from ..rules.strategy import Context, Strategy
from ..types import status_errors
from ..types.kind import Kind
from ..types.options import DeleteOptions, WriteOptions
from ..types.resource import NAMESPACES, PRIORITY_CLASSES, GroupResource
from ..types.status_errors import Cause, StatusError, bad_request
from . import deletion, managed_fields, object_parts
from .managed_fields import Manager
from .store import Store

# The bytes of an object as JSON. A larger one could not be sent back in a request. A real server's
# database takes half as much, in a form that is more compact.
MAX_STORED = 3 << 20

# Characters. With the letters that follow them, the name is a DNS label.
MAX_GENERATED_PREFIX = 58
UNCONDITIONAL_UPDATE = "Invalid value: 0: must be specified for an update"


class Registry:
    """The objects of all kinds, by the rules of a Kubernetes release.

    Every method does all of its work or none: it returns the stored object, or raises a StatusError
    and changes nothing. A dry run returns the object that would be stored.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], str],
        new_uid: Callable[[], str],
        name_suffix: Callable[[], str],
        release: str = "1.37",
    ) -> None:
        self.store, self.release = store, release
        self.now, self._new_uid, self._name_suffix = now, new_uid, name_suffix
        # Returns warnings for the writer of an object. The simulated cluster sets it.
        self.advice: Callable[[Document], list[str]] = lambda _: []

    # ------------------------------------------------------------ create

    def create(self, kind: Kind, namespace: str, obj: Document, options: WriteOptions) -> Document:
        """Creates an object and returns it as it is stored."""
        self._strategy(kind).check_admission(obj, None, self._context(options))
        new = self._with_system_metadata(kind, namespace, obj, options)

        # The writer owns the fields in which the object differs from an empty one. The status has
        # no owner, even if the object comes with one.
        empty = {"apiVersion": new["apiVersion"], "kind": new["kind"]} | self._strategy(kind).empty
        if kind.has_status and "status" in new:
            empty["status"] = new["status"]
        manager = _manager(kind, options, "Update")
        new = managed_fields.update(kind.schema, empty, new, manager, self.now())
        return self._create(kind, new, options)

    def _with_system_metadata(
        self, kind: Kind, namespace: str, obj: Document, options: WriteOptions
    ) -> Document:
        """Returns the object with a name, the system's metadata, and its defaults.

        The status is dropped, unless objects of the kind may be created with one.
        """
        metadata = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            # A real server answers 500 here, because this check is in its storage layer.
            message = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "", message)
        _check_namespace(kind, namespace, metadata)

        if not metadata.get("name") and metadata.get("generateName"):
            prefix = metadata["generateName"][:MAX_GENERATED_PREFIX]
            metadata["name"] = prefix + self._name_suffix()
        metadata = object_parts.drop_fields(
            metadata,
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "selfLink",
        )
        metadata |= {"uid": self._new_uid(), "creationTimestamp": self.now()}
        if kind.has_generation:
            metadata["generation"] = 1

        kind_strategy, whole = self._strategy(kind), object_parts.with_type_meta(kind, obj)
        new = whole if kind_strategy.keeps_new_status else object_parts.writable(kind, whole, "")
        return kind_strategy.with_defaults(new | {"metadata": metadata}, self._context(options))

    def _create(self, kind: Kind, new: Document, options: WriteOptions) -> Document:
        """Validates and stores a new object.

        The writer does not own fields that are added from here on.
        """
        kind_strategy, context = self._strategy(kind), self._context(options)
        metadata = new["metadata"]
        new = kind_strategy.prepare_for_create(new, context)
        causes = kind_strategy.validate(new, context)
        if causes:
            raise status_errors.invalid(kind.resource, metadata.get("name", ""), causes)

        options.validate_admission(None, new)
        _check_size(new)
        if self.store.find(kind.resource, metadata.get("namespace", ""), metadata["name"]):
            raise status_errors.already_exists(kind.resource, metadata["name"])
        return new if options.dry_run else self.store.create(kind.resource, new)

    # ------------------------------------------------------------ update

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Document, options: WriteOptions
    ) -> Document:
        """Replaces an object. The new object must have the name and uid of the stored one.

        If the new object has a resource version, the update raises a 409 unless that is the latest
        one. Without a resource version it replaces any version, unless the kind requires one.
        """
        metadata = obj.get("metadata") or {}
        _check_name(metadata.get("name") or name, name)
        old = self.store.get(kind.resource, namespace, name)

        unconditional = not metadata.get("resourceVersion")
        api_version = options.api_version
        if unconditional and not self._strategy(kind).allows_unconditional_update(api_version):
            cause = Cause("FieldValueInvalid", UNCONDITIONAL_UPDATE, "metadata.resourceVersion")
            plural, group = kind.resource.plural, kind.resource.group
            raise status_errors.invalid(GroupResource(plural, group, plural), name, [cause])

        # A uid in an update is a precondition. In a patch it is a field, which may not change.
        uid = old["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            why = _other_uid(kind, old["metadata"], metadata["uid"])
            raise status_errors.conflict(kind.resource, name, why)
        return self._update(kind, old, obj, options, _manager(kind, options, "Update"))

    def change(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Document], Document],
        options: WriteOptions,
    ) -> Document:
        """Replaces the object by the result of `change`, as patches do."""
        old = self.store.get(kind.resource, namespace, name)
        return self._update(kind, old, change(old), options, _manager(kind, options, "Update"))

    def _update(
        self,
        kind: Kind,
        old: Document,
        obj: Document,
        options: WriteOptions,
        manager: Manager | None,
    ) -> Document:
        """Stores a new version of an object.

        `manager` is None if managedFields are already right.
        """
        metadata = _check_metadata(kind, old, obj)
        kind_strategy, context = self._strategy(kind), self._context(options)

        # The parts that the writer may change, with their defaults and owners.
        new = object_parts.with_type_meta(kind, obj) | {"metadata": metadata}
        new = object_parts.carry_over(kind, old, new, options.subresource)
        new = kind_strategy.with_defaults(new, context)
        if manager:
            new = self._with_owners(kind, old, new, metadata, manager)

        # The writer does not own fields that are added from here on.
        if not options.subresource:
            kind_strategy.check_admission(new, old, context)
        new = kind_strategy.prepare_for_update(new, old, options.subresource, context)
        causes = kind_strategy.validate_update(new, old, obj, options.subresource, context)
        if causes:
            raise status_errors.invalid(kind.resource, metadata["name"], causes)

        if kind.has_generation and kind_strategy.changes_generation(new, old):
            generation = old["metadata"].get("generation", 0) + 1
            new = new | {"metadata": new["metadata"] | {"generation": generation}}
        options.validate_admission(old, new)
        _check_size(new)

        # A write that changes no field does not change the times in managedFields either.
        if object_parts.without_times(new) == object_parts.without_times(old):
            new = old
        if options.dry_run:
            return new
        if deletion.is_over(old, new):
            self.store.delete(kind.resource, old)
            return new
        return self.store.replace(kind.resource, old, new)

    def _with_owners(
        self, kind: Kind, old: Document, new: Document, metadata: Document, manager: Manager
    ) -> Document:
        """Returns the new object with its managedFields. `metadata` is that of the request.

        In old releases a write of the status owns its metadata, although that is not stored.
        """
        now = self.now()
        if manager.subresource != "status" or not self._strategy(kind).status_takes_metadata:
            return managed_fields.update(kind.schema, old, new, manager, now)

        as_written = new | {"metadata": metadata}
        with_owners = managed_fields.update(kind.schema, old, as_written, manager, now)
        owned = with_owners["metadata"]
        stored = object_parts.drop_fields(new["metadata"], "managedFields")
        if "managedFields" in owned:
            stored["managedFields"] = owned["managedFields"]
        return new | {"metadata": stored}

    # ------------------------------------------------------------ apply

    def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Document,
        options: WriteOptions,
        force: bool,
    ) -> tuple[Document, bool]:
        """Applies a configuration server-side. Returns the object, and True if it is new."""
        metadata = config.get("metadata") or {}
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        config_name = metadata.get("name", name)
        config = object_parts.with_type_meta(kind, config) | {"metadata": metadata | {"name": name}}
        manager = _manager(kind, options, "Apply")

        old = self.store.find(kind.resource, namespace, name)
        if old is None:
            if options.subresource:
                raise status_errors.not_found(kind.resource, name)
            _check_no_uid(kind, name, metadata)
            empty = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
            part = object_parts.writable(kind, config, "")
            new = managed_fields.apply(kind.schema, empty, part, manager, force, self.now())
            _check_name(config_name, name)
            self._strategy(kind).check_admission(new, None, self._context(options))
            new = self._with_system_metadata(kind, namespace, new, options)
            return self._create(kind, new, options), True

        part = object_parts.writable(kind, config, options.subresource)
        if options.subresource and self._strategy(kind).status_takes_metadata:
            part["metadata"] = config["metadata"]
        new = managed_fields.apply(kind.schema, old, part, manager, force, self.now())
        _check_name(config_name, name)
        return self._update(kind, old, new, options, None), False

    # ------------------------------------------------------------ delete

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Document:
        """Deletes an object. Returns the removed object, or the object that waits for finalizers or
        kubelet.

        May be repeated. A repeated deletion can shorten the grace period or change the policy.
        """
        old = self.store.get(kind.resource, namespace, name)
        deletion.check_preconditions(kind, old["metadata"], options)
        options.validate_admission(old, None)
        if options.dry_run:
            return old

        kind_strategy = self._strategy(kind)
        default_policy = kind_strategy.default_propagation_policy
        finalizers = deletion.finalizers(old["metadata"], options, default_policy)
        if "deletionTimestamp" not in old["metadata"]:
            finalizers = list(dict.fromkeys([*finalizers, *kind_strategy.deletion_finalizers]))
        grace = deletion.grace_period(kind, old, options)
        if finalizers or grace or deletion.has_contents(old):
            marked = deletion.mark(kind, old, finalizers, grace, self.now())
            return self.store.replace(kind.resource, old, marked)

        last = self.store.delete(kind.resource, old)
        if "deletionTimestamp" not in old["metadata"]:
            return last
        # An object that was already being deleted shows that its grace period is over.
        return last | {"metadata": last["metadata"] | {"deletionGracePeriodSeconds": 0}}

    # ------------------------------------------------------------ rules of the kind

    def warnings(self, kind: Kind, obj: Document) -> list[str]:
        """Returns warnings about an object that is valid but questionable."""
        return self._strategy(kind).warnings(obj)

    def _strategy(self, kind: Kind) -> Strategy:
        return strategies.choose_strategy(kind, self.release)

    def _context(self, options: WriteOptions) -> Context:
        version = options.api_version.rpartition("/")[2]
        return Context(
            now=self.now(),
            version=version,
            namespace=lambda name: self.store.find(NAMESPACES, "", name),
            priority_classes=lambda: self.store.page(PRIORITY_CLASSES).items,
        )


def _check_size(new: Document) -> None:
    """Refuses an object that has become too large, perhaps by many small patches."""
    if len(msgspec.json.encode(new)) > MAX_STORED:
        raise status_errors.too_large_to_store()


def _manager(kind: Kind, options: WriteOptions, operation: str) -> Manager:
    api_version = options.api_version or kind.api_version
    return Manager(options.field_manager, operation, api_version, options.subresource)


# ---------------------------------------------------------------- the identity of an object


def _check_metadata(kind: Kind, old: Document, obj: Document) -> Document:
    """Returns the metadata of a new version, after a check that it belongs to the old object."""
    before, metadata = old["metadata"], dict(obj.get("metadata") or {})
    name = before["name"]
    _check_name(metadata.setdefault("name", name), name)
    _check_namespace(kind, before.get("namespace", ""), metadata)
    version = before["resourceVersion"]
    if metadata.get("resourceVersion", version) != version:
        raise status_errors.modified_conflict(kind.resource, name)
    if metadata.get("finalizers") == []:
        # Go's encoding omits an empty list.
        del metadata["finalizers"]
    return metadata


def _check_name(name: str, wanted: str) -> None:
    if name != wanted:
        why = f"({name}) does not match the name on the URL ({wanted})"
        raise bad_request(f"the name of the object {why}")


def _check_namespace(kind: Kind, namespace: str, metadata: Document) -> None:
    """Adds the namespace to metadata that lacks it, and refuses another one."""
    if not kind.namespaced:
        if metadata.get("namespace"):
            raise bad_request("namespace should not be set on a cluster-scoped object")
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_no_uid(kind: Kind, name: str, metadata: Document) -> None:
    uid = metadata.get("uid")
    if uid:
        why = f"the provided object specified uid {uid}, and no existing object was found"
        raise status_errors.conflict(kind.resource, name, f"uid mismatch: {why}")


def _other_uid(kind: Kind, before: Document, uid: str) -> str:
    """Returns the reason of a conflict of uids, in the words of a real server's store."""
    parts = (kind.resource.plural, before.get("namespace"), before["name"])
    key = "/".join(part for part in parts if part)
    uids = f"UID in precondition: {uid}, UID in object meta: {before['uid']}"
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {uids}"
    )
