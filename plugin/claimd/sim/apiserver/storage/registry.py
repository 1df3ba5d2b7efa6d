"""What may be done with an object of any kind: create, update, apply, delete.

Names, versions, the status apart from the rest, owners of fields, finalizers: what all kinds have
in common is here, between HTTP and the store. What one kind has beyond that is its strategy. Time,
uids and the letters of generated names are given, so that the same calls make the same objects.
"""

from __future__ import annotations

from collections.abc import Callable

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

MAX_GENERATED_PREFIX = 58  # characters: with the letters behind them, a DNS label
UNCONDITIONAL_UPDATE = "Invalid value: 0: must be specified for an update"


class Registry:
    """All kinds' objects, by the rules of a release.

    Every method does all of it or nothing: it returns the object as it is stored then, or raises a
    StatusError and has changed nothing. A dry run returns what would be stored.
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
        # What whoever stands around the server says to the writer of an object.
        self.advice: Callable[[Document], list[str]] = lambda _: []

    # ------------------------------------------------------------ create

    def create(self, kind: Kind, namespace: str, obj: Document, options: WriteOptions) -> Document:
        self._strategy(kind).check_admission(obj, None, self._context(options))
        new = self._with_system_metadata(kind, namespace, obj, options)

        # The writer owns what makes the object differ from one of which nobody has said anything.
        # A status that it may come with is nobody's.
        empty = {"apiVersion": new["apiVersion"], "kind": new["kind"]} | self._strategy(kind).empty
        if kind.has_status and "status" in new:
            empty["status"] = new["status"]
        manager = _manager(kind, options, "Update")
        new = managed_fields.update(kind.schema, empty, new, manager, self.now())
        return self._create(kind, new, options)

    def _with_system_metadata(
        self, kind: Kind, namespace: str, obj: Document, options: WriteOptions
    ) -> Document:
        """The object with a name, what the system gives it, and its defaults.

        Without a status, unless objects of the kind may be created with one.
        """
        metadata = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "", message)
        _check_namespace(kind, namespace, metadata)

        if not metadata.get("name") and metadata.get("generateName"):
            prefix = metadata["generateName"][:MAX_GENERATED_PREFIX]
            metadata["name"] = prefix + self._name_suffix()
        metadata = object_parts.without(
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
        """From here on nothing that is added is the writer's."""
        kind_strategy, context = self._strategy(kind), self._context(options)
        metadata = new["metadata"]
        new = kind_strategy.prepare_for_create(new, context)
        causes = kind_strategy.validate(new, context)
        if causes:
            raise status_errors.invalid(kind.resource, metadata.get("name", ""), causes)

        options.validate_admission(None, new)
        if self.store.find(kind.resource, metadata.get("namespace", ""), metadata["name"]):
            raise status_errors.already_exists(kind.resource, metadata["name"])
        return new if options.dry_run else self.store.create(kind.resource, new)

    # ------------------------------------------------------------ update

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Document, options: WriteOptions
    ) -> Document:
        """Replaces the object; what the object says of itself must be the one that is stored.

        With a resource version, 409 if that is not the latest. Without one the update counts
        whatever is stored, but for kinds that have to be told it.
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

        # A uid is a precondition of who replaces an object. In a patch it is a field like others,
        # and one that may not change.
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
        """Replaces the object by what `change` makes of it, as patches do."""
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
        """`manager` is None where the owners of the fields are right already."""
        metadata = _checked_metadata(kind, old, obj)
        kind_strategy, context = self._strategy(kind), self._context(options)

        # What the writer has a say in, with its defaults and its owner.
        new = object_parts.with_type_meta(kind, obj) | {"metadata": metadata}
        new = object_parts.carry_over(kind, old, new, options.subresource)
        new = kind_strategy.with_defaults(new, context)
        if manager:
            new = self._with_owners(kind, old, new, metadata, manager)

        # From here on nothing that is added is the writer's.
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

        # Who changes nothing is not remembered for when he did not.
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
        """`metadata` is as the writer said it.

        Old releases took it for the writer's even with a status, where it is not stored.
        """
        now = self.now()
        if manager.subresource != "status" or not self._strategy(kind).status_takes_metadata:
            return managed_fields.update(kind.schema, old, new, manager, now)

        as_written = new | {"metadata": metadata}
        owned = managed_fields.update(kind.schema, old, as_written, manager, now)["metadata"]
        stored = object_parts.without(new["metadata"], "managedFields")
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
        """The object after a server-side apply, and whether it is new."""
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
        """The object: gone, or deleted and waiting for its finalizers or for its kubelet.

        May be repeated; then it can still shorten the grace period or change the policy.
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
        return last | {"metadata": last["metadata"] | {"deletionGracePeriodSeconds": 0}}

    # ------------------------------------------------------------ rules of the kind

    def warnings(self, kind: Kind, obj: Document) -> list[str]:
        """Of what is not wrong with an object that was written, and yet should be otherwise."""
        return self._strategy(kind).warnings(obj)

    def _strategy(self, kind: Kind) -> Strategy:
        return strategies.of(kind, self.release)

    def _context(self, options: WriteOptions) -> Context:
        version = options.api_version.rpartition("/")[2]
        return Context(
            now=self.now(),
            version=version,
            namespace=lambda name: self.store.find(NAMESPACES, "", name),
            priority_classes=lambda: self.store.page(PRIORITY_CLASSES).items,
        )


def _manager(kind: Kind, options: WriteOptions, operation: str) -> Manager:
    api_version = options.api_version or kind.api_version
    return Manager(options.field_manager, operation, api_version, options.subresource)


# ---------------------------------------------------------------- is it the object that is meant?


def _checked_metadata(kind: Kind, old: Document, obj: Document) -> Document:
    """The metadata of a new object, which must be that of the old one."""
    before, metadata = old["metadata"], dict(obj.get("metadata") or {})
    name = before["name"]
    _check_name(metadata.setdefault("name", name), name)
    _check_namespace(kind, before.get("namespace", ""), metadata)
    version = before["resourceVersion"]
    if metadata.get("resourceVersion", version) != version:
        raise status_errors.modified_conflict(kind.resource, name)
    if metadata.get("finalizers") == []:
        del metadata["finalizers"]  # as a list that has become empty is not written
    return metadata


def _check_name(name: str, wanted: str) -> None:
    if name != wanted:
        why = f"({name}) does not match the name on the URL ({wanted})"
        raise bad_request(f"the name of the object {why}")


def _check_namespace(kind: Kind, namespace: str, metadata: Document) -> None:
    """Puts the namespace in where the object does not say it."""
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
    """As a real server words it, whose store notices."""
    parts = (kind.resource.plural, before.get("namespace"), before["name"])
    key = "/".join(part for part in parts if part)
    uids = f"UID in precondition: {uid}, UID in object meta: {before['uid']}"
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {uids}"
    )
