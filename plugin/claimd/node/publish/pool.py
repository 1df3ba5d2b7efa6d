"""The pool of this node: which writes turn the existing slices into the desired ones.

This module is pure: its input are the slices in the API server, and its output the slices to write.
It knows generations and the forms in which the API server stores slices. `slices` decides about
their content, the publisher about the time to write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.meta import OwnerReference
from claimd.kubernetes.api.resource import ResourcePool, ResourceSlice, ResourceSliceSpec

# One write: an object to delete, or a slice to update or create.
Write = ResourceSlice | Document

GENERATION_LIMIT = 2**63 - 1

# JSON values that the API treats like an absent field.
_NOTHINGS = (b"null", b"{}", b"[]")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The slices that this process has written, or was about to write when it last tried."""

    generation: int
    bodies: Mapping[str, Document]  # by the slice's name, as `body` gives them


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The writes that are needed, in this order: delete, update, create."""

    target: Published  # the slices after all these writes
    delete: list[Document]
    update: list[ResourceSlice]
    create: list[ResourceSlice]

    def writes(self) -> list[Write]:
        """Returns everything to write, in the order in which to write it."""
        return [*self.delete, *self.update, *self.create]


def slice_name(write: Write) -> str:
    """Returns the name of the slice that is to be written."""
    if isinstance(write, ResourceSlice):
        return write.metadata.name
    return str(write["metadata"]["name"])


def body(spec: ResourceSliceSpec | Document) -> Document:
    """Returns a slice's spec without its pool, as plain data that can be compared.

    Null, {} and [] are left out, since the API treats them like absent fields.
    """
    plain = msgspec.to_builtins(spec) if isinstance(spec, ResourceSliceSpec) else spec
    content = {key: value for key, value in plain.items() if key != "pool"}

    # Usually there is nothing to leave out. A search in the JSON text shows this quickly; a look at
    # each value would cost more than all other work between an event and its slice.
    encoded = msgspec.json.encode(content)
    if not any(nothing in encoded for nothing in _NOTHINGS):
        return content
    pruned = {key: _prune(value) for key, value in content.items()}
    return {key: value for key, value in pruned.items() if value is not None}


def _prune(value: object) -> object:
    if isinstance(value, dict):
        pruned = {key: _prune(item) for key, item in value.items()}
        return {key: item for key, item in pruned.items() if item is not None} or None
    if isinstance(value, list):
        return [_prune(item) for item in value] or None
    return value


def compare(
    desired: Sequence[ResourceSlice],
    existing: Mapping[str, Document],
    last: Published | None,
    stored_forms: Mapping[str, tuple[Document, Document]],
) -> Changes:
    """Returns the writes that turn the existing slices of our driver and node into the desired ones.

    `last` is what this process published last, if anything. The API server may drop fields:
    `stored_forms` has, by the slice's name, a body and the form in which the API server keeps it.
    This form counts as equal to the body.
    """
    by_name = {slice_.metadata.name: slice_ for slice_ in desired}
    bodies = {name: body(slice_.spec) for name, slice_ in by_name.items()}

    # A slice's pool is immutable, so a slice of another pool must be deleted. A slice that waits for
    # a finalizer is deleted already.
    kept: dict[str, Document] = {}
    delete: list[Document] = []
    for name, slice_ in sorted(existing.items()):
        if name in by_name and _pool(slice_).get("name") == by_name[name].spec.pool.name:
            kept[name] = slice_
        elif not slice_["metadata"].get("deletionTimestamp"):
            delete.append(slice_)

    # The generation depends on which slices must change.
    different = {
        name
        for name, slice_ in kept.items()
        if not _is_same(bodies[name], slice_, stored_forms.get(name))
    }
    highest = max([_generation(slice_) for slice_ in existing.values()], default=0)
    if last is not None:
        highest = max(highest, last.generation)
    generation = _next_generation(highest, kept, different, bodies, last)
    pool = ResourcePool(
        name=desired[0].spec.pool.name, generation=generation, resource_slice_count=len(desired)
    )

    # Slices that change within the current generation come first. The last of the other writes
    # completes the pool, and no slice may have its old content then.
    outdated = [
        name
        for name, slice_ in kept.items()
        if name in different or not _has_frame(slice_, by_name[name], pool)
    ]
    first = [name for name in outdated if name in different and _generation(kept[name]) == highest]
    rest = [name for name in outdated if name not in first]
    return Changes(
        target=Published(generation=generation, bodies=bodies),
        delete=delete,
        update=[_to_write(by_name[name], pool, kept[name]) for name in [*first, *rest]],
        create=[
            _to_write(slice_, pool, None)
            for name, slice_ in by_name.items()
            if name not in existing
        ],
    )


def _next_generation(
    highest: int,
    kept: Mapping[str, Document],
    different: set[str],
    bodies: Mapping[str, Document],
    last: Published | None,
) -> int:
    """Returns the generation to write, given the highest one that was seen.

    The generation tells the pool's consumers which slices belong together. It may stay if at most
    one slice changes, because consumers then never see a mixture of old and new. A slice that is
    missing or has an older generation makes the pool incomplete, and consumers wait; it is written
    last and completes the pool. All other changes need the next generation.
    """
    current = [name for name, slice_ in kept.items() if _generation(slice_) == highest]
    if current:
        counts = {_count(kept[name]) for name in current}
        stays = len(different.intersection(current)) <= 1 and counts == {len(bodies)}
    else:
        # Another client deleted the slices, or restored an old state of them. Content that was
        # published with this number keeps the number. Other content needs a new number.
        stays = last is not None and last.generation == highest and dict(last.bodies) == bodies
    if stays:
        return highest
    return min(highest + 1, GENERATION_LIMIT)


def _to_write(
    desired: ResourceSlice, pool: ResourcePool, existing: Document | None
) -> ResourceSlice:
    """Returns the slice to write. An update keeps labels and annotations, which others may set."""
    metadata = desired.metadata
    if existing is not None:
        current = existing["metadata"]
        metadata = msgspec.structs.replace(
            metadata,
            uid=current["uid"],
            resource_version=current["resourceVersion"],
            labels=current.get("labels") or {},
            annotations=current.get("annotations") or {},
        )
    return ResourceSlice(metadata=metadata, spec=msgspec.structs.replace(desired.spec, pool=pool))


def _has_frame(existing: Document, desired: ResourceSlice, pool: ResourcePool) -> bool:
    """Returns True if generation, count and owner are right. It does not compare the body."""
    owners = msgspec.to_builtins(desired.metadata.owner_references)
    return (
        _generation(existing) == pool.generation
        and _count(existing) == pool.resource_slice_count
        and existing["metadata"].get("ownerReferences", []) == owners
    )


def _is_same(
    desired: Document, existing: Document, stored_form: tuple[Document, Document] | None
) -> bool:
    current = body(existing["spec"])
    return current == desired or stored_form == (desired, current)


def _pool(slice_: Document) -> Document:
    pool = slice_["spec"].get("pool")
    return pool if isinstance(pool, dict) else {}


def _generation(slice_: Document) -> int:
    return int(_pool(slice_).get("generation", 0))


def _count(slice_: Document) -> object:
    return _pool(slice_).get("resourceSliceCount")


def add_owner(desired: Sequence[ResourceSlice], node: str, uid: str) -> list[ResourceSlice]:
    """Returns the slices with the Node as their owner: the API server deletes them with the Node."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=uid, controller=True)
    owned_slices = []
    for slice_ in desired:
        metadata = msgspec.structs.replace(slice_.metadata, owner_references=[owner])
        owned_slices.append(msgspec.structs.replace(slice_, metadata=metadata))
    return owned_slices


def differences(sent: object, stored: object, path: str = "spec") -> list[str]:
    """Returns the paths of the fields that are not stored as they were sent.

    Lists are written with [*], as in spec.devices[*].capacity: the same field of all devices is one
    path.
    """
    if sent == stored:
        return []
    if isinstance(sent, dict) and isinstance(stored, dict):
        paths = set()
        for key, value in sent.items():
            paths.update(differences(value, stored.get(key), f"{path}.{key}"))
        return sorted(paths)
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        paths = set()
        for sent_item, stored_item in zip(sent, stored, strict=True):
            paths.update(differences(sent_item, stored_item, f"{path}[*]"))
        return sorted(paths)
    return [path]
