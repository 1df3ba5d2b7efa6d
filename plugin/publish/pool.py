"""The pool of this node: what must be written so that the slices that stand become those that are
wanted.

Pure: slices as the API server has them in, slices to write out. Generations and the form in which
the API server keeps a slice are understood here; what a slice says is `slices`'s, when to write it
is the publisher's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..api.meta import OwnerReference
from ..api.resource import ResourcePool, ResourceSlice, ResourceSliceSpec

Raw = dict[str, Any]  # an object or a part of it as the API server has it, in the shape of v1

GENERATION_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was brought out."""

    generation: int
    bodies: Mapping[str, Raw]  # by name of the slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to write, in this order: delete, update, create."""

    generation: int
    delete: list[Raw]
    update: list[ResourceSlice]
    create: list[ResourceSlice]


def body(part: ResourceSliceSpec | Raw) -> Raw:
    """A slice's spec as plain data without its pool. Null, {} and [] are the same as nothing, as in
    the API.
    """
    plain = msgspec.to_builtins(part) if isinstance(part, ResourceSliceSpec) else part
    return {
        key: kept
        for key, value in plain.items()
        if key != "pool" and (kept := _pruned(value)) is not None
    }


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        kept = {key: inner for key, item in value.items() if (inner := _pruned(item)) is not None}
        return kept or None
    if isinstance(value, list):
        return [_pruned(item) for item in value] or None
    return value


def compare(
    wanted: Sequence[ResourceSlice],
    existing: Mapping[str, Raw],
    last: Published | None,
    stored: Mapping[str, tuple[Raw, Raw]],
) -> Changes:
    """What must be written so that the existing slices of our driver and node become the wanted
    ones.

    `last` is what this process published last, if anything. `stored` knows, by slice, the form in
    which the API server keeps a body (it may drop fields): that form is as good as the body.
    """
    wishes = {wish.metadata.name: wish for wish in wanted}
    bodies = {name: body(wish.spec) for name, wish in wishes.items()}
    standing: dict[str, Raw] = {}
    delete: list[Raw] = []
    for name, found in sorted(existing.items()):
        if name in wishes and _pool(found).get("name") == wishes[name].spec.pool.name:
            standing[name] = found
        elif not found["metadata"].get(
            "deletionTimestamp"
        ):  # what waits for a finalizer is deleted already
            delete.append(found)
    other = {
        name
        for name, found in standing.items()
        if not _same_body(name, bodies[name], found, stored)
    }
    base = max(
        [_generation(found) for found in existing.values()] + [last.generation if last else 0]
    )
    generation = _next_generation(base, standing, other, bodies, last)
    pool = ResourcePool(
        name=wanted[0].spec.pool.name, generation=generation, resource_slice_count=len(wanted)
    )
    update = {}
    for name, found in standing.items():
        owners = msgspec.to_builtins(wishes[name].metadata.owner_references)
        right = (
            name not in other and _generation(found) == generation and _count(found) == len(wanted)
        )
        if not right or found["metadata"].get("ownerReferences", []) != owners:
            update[name] = _targeted(wishes[name], pool, found)
    first = [name for name in update if name in other and _generation(standing[name]) == base]
    return Changes(
        generation=generation,
        delete=delete,
        update=[update[name] for name in [*first, *(name for name in update if name not in first)]],
        create=[
            _targeted(wish, pool, None) for name, wish in wishes.items() if name not in existing
        ],
    )


def _next_generation(
    base: int,
    standing: Mapping[str, Raw],
    other: set[str],
    bodies: Mapping[str, Raw],
    last: Published | None,
) -> int:
    """The generation to write, from the highest that was seen. `other` are the slices whose content
    must change.

    A generation tells the pool's consumers which slices belong together. It stays if what they see
    is never a mixture: if at most one slice of it changes. A slice that is missing or of an older
    generation makes the pool incomplete, and consumers wait; written last, it completes the pool.
    Everything else takes the next generation.
    """
    current = [name for name, found in standing.items() if _generation(found) == base]
    if current:
        counts = {_count(standing[name]) for name in current}
        stays = len(other.intersection(current)) <= 1 and counts == {len(bodies)}
    # wiped, or put back to what they once were: known content keeps its number, other content takes
    # a new one
    else:
        stays = last is not None and last.generation == base and dict(last.bodies) == bodies
    return base if stays else min(base + 1, GENERATION_LIMIT)


def _targeted(wish: ResourceSlice, pool: ResourcePool, found: Raw | None) -> ResourceSlice:
    """The slice to write. In an update labels and annotations stay: they are for others to set."""
    metadata = wish.metadata
    if found is not None:
        seen = found["metadata"]
        metadata = msgspec.structs.replace(
            metadata,
            uid=seen["uid"],
            resource_version=seen["resourceVersion"],
            labels=seen.get("labels") or {},
            annotations=seen.get("annotations") or {},
        )
    return ResourceSlice(metadata=metadata, spec=msgspec.structs.replace(wish.spec, pool=pool))


def _same_body(name: str, wanted: Raw, found: Raw, stored: Mapping[str, tuple[Raw, Raw]]) -> bool:
    seen = body(found["spec"])
    return seen == wanted or stored.get(name) == (wanted, seen)


def _pool(found: Raw) -> Raw:
    pool = found["spec"].get("pool")
    return pool if isinstance(pool, dict) else {}


def _generation(found: Raw) -> int:
    return int(_pool(found).get("generation", 0))


def _count(found: Raw) -> object:
    return _pool(found).get("resourceSliceCount")


def owned(wanted: Sequence[ResourceSlice], node: str, uid: str) -> list[ResourceSlice]:
    """The slices as the Node's, so that they go with it."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=uid, controller=True)
    return [
        msgspec.structs.replace(
            wish, metadata=msgspec.structs.replace(wish.metadata, owner_references=[owner])
        )
        for wish in wanted
    ]


def differences(sent: object, kept: object, path: str = "spec") -> list[str]:
    """Paths of what was sent and is not kept, or not as it was sent. A path names no device: all of
    them share it.
    """
    if sent == kept:
        return []
    if isinstance(sent, dict) and isinstance(kept, dict):
        found = [differences(value, kept.get(key), f"{path}.{key}") for key, value in sent.items()]
        return sorted({line for lines in found for line in lines})
    if isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        pairs = [
            differences(one, other, f"{path}[*]") for one, other in zip(sent, kept, strict=True)
        ]
        return sorted({line for lines in pairs for line in lines})
    return [path]
