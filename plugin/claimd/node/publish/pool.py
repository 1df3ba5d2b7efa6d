"""The pool of this node: what must be written so that existing slices become the desired ones.

Pure: slices as the API server has them in, slices to write out. Generations, and the form in which
the API server keeps a slice, are understood here. What a slice says is slices', when to write it is
the publisher's.
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

# What is the same as nothing, as JSON has it.
_NOTHINGS = (b"null", b"{}", b"[]")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What this process has written, or was about to write when it last tried."""

    generation: int
    bodies: Mapping[str, Document]  # by the slice's name, as `body` gives them


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, in this order: delete, update, create."""

    target: Published  # what stands once all of it is written
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
    """A slice's spec as plain data, without its pool, to be compared.

    Null, {} and [] are the same as nothing, as in the API.
    """
    plain = msgspec.to_builtins(spec) if isinstance(spec, ResourceSliceSpec) else spec
    content = {key: value for key, value in plain.items() if key != "pool"}

    # Nearly always there is nothing to leave out. JSON tells at once, while a look at each value
    # costs more than all else between an event and its slice.
    encoded = msgspec.json.encode(content)
    if not any(nothing in encoded for nothing in _NOTHINGS):
        return content
    pruned = {key: _pruned(value) for key, value in content.items()}
    return {key: value for key, value in pruned.items() if value is not None}


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        pruned = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in pruned.items() if item is not None} or None
    if isinstance(value, list):
        return [_pruned(item) for item in value] or None
    return value


def compare(
    desired: Sequence[ResourceSlice],
    existing: Mapping[str, Document],
    last: Published | None,
    stored_forms: Mapping[str, tuple[Document, Document]],
) -> Changes:
    """What must be written so that the existing slices of our driver and node become the desired.

    `last` is what this process published last, if anything. `stored_forms` has, by slice, a body
    and the form in which the API server keeps it, since it may drop fields: the form is as good as
    the body.
    """
    by_name = {slice_.metadata.name: slice_ for slice_ in desired}
    bodies = {name: body(slice_.spec) for name, slice_ in by_name.items()}

    # A slice's pool is immutable: one of another pool cannot be updated. And what waits for a
    # finalizer is deleted already.
    kept: dict[str, Document] = {}
    delete: list[Document] = []
    for name, slice_ in sorted(existing.items()):
        if name in by_name and _pool(slice_).get("name") == by_name[name].spec.pool.name:
            kept[name] = slice_
        elif not slice_["metadata"].get("deletionTimestamp"):
            delete.append(slice_)

    # The generation follows from which of them have to change.
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

    # What changes within a generation that stays comes first. The last of the others completes the
    # pool, and must not complete it with an old content.
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
    """The generation to write, from the highest that was seen.

    A generation tells the pool's consumers which slices belong together. It stays if what they see
    is never a mixture: if at most one slice of it changes. A slice that is missing or of an older
    generation makes the pool incomplete, and consumers wait; written last, it completes the pool.
    Everything else takes the next generation.
    """
    current = [name for name, slice_ in kept.items() if _generation(slice_) == highest]
    if current:
        counts = {_count(kept[name]) for name in current}
        stays = len(different.intersection(current)) <= 1 and counts == {len(bodies)}
    else:
        # Wiped, or put back to what they once were. Content that was published with this number
        # keeps it, other content takes a new one.
        stays = last is not None and last.generation == highest and dict(last.bodies) == bodies
    if stays:
        return highest
    return min(highest + 1, GENERATION_LIMIT)


def _to_write(
    desired: ResourceSlice, pool: ResourcePool, existing: Document | None
) -> ResourceSlice:
    """The slice to write. In an update labels and annotations stay: they are for others to set."""
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
    """Whether generation, count and owner are right; the body is compared by itself."""
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
    """The slices as the Node's, so that the API server deletes them with it."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=uid, controller=True)
    owned_slices = []
    for slice_ in desired:
        metadata = msgspec.structs.replace(slice_.metadata, owner_references=[owner])
        owned_slices.append(msgspec.structs.replace(slice_, metadata=metadata))
    return owned_slices


def differences(sent: object, stored: object, path: str = "spec") -> list[str]:
    """Paths of what was sent and is not stored, or not as it was sent.

    A path names no device, since all of them share it, as in spec.devices[*].capacity.
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
