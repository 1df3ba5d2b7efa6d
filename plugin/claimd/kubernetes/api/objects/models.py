"""The versions by name, and every class of each as the Python client calls them.

`models.V1alpha3ResourceClaimStatus` is such a name. V1alpha3 is the shape of Kubernetes 1.31, and
what only later releases had comes from theirs; the later shape of a class that both have is in the
module `v1alpha3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

from . import v1, v1alpha2, v1alpha3, v1alpha3_31, v1beta1, v1beta2
from .meta import Object, ObjectList
from .model import Model
from .shapes import Shape, fields_of

GROUP = "resource.k8s.io"


class Version(Protocol):
    KINDS: tuple[type[Object], ...]
    LISTS: tuple[type[ObjectList], ...]


VERSIONS: dict[str, Version] = {
    "v1": v1,
    "v1beta2": v1beta2,
    "v1beta1": v1beta1,
    "v1alpha3": v1alpha3,
    "v1alpha3-1.31": v1alpha3_31,
    "v1alpha2": v1alpha2,
}


def kinds(version: str) -> dict[str, type[Object]]:
    """What documents of this version may be."""
    return {kind.__name__: kind for kind in VERSIONS[version].KINDS}


@cache
def classes(version: str) -> dict[str, type[Model]]:
    """Every class that the version's kinds and lists are made of."""
    roots = (*VERSIONS[version].KINDS, *VERSIONS[version].LISTS)
    return {cls.__name__: cls for root in roots for cls in _within(root)}


def _within(cls: type[Model]) -> Iterator[type[Model]]:
    yield cls
    for field in fields_of(cls).values():
        shape: Shape | None = field.shape
        while shape:
            if shape.struct and issubclass(shape.struct, Model):
                yield from _within(shape.struct)
            shape = shape.item


def __getattr__(name: str) -> Any:
    """The class of the Python client's name.

    Where the core API has the same name, that client says ResourceV1…
    """
    parts = re.fullmatch(r"(?:Resource)?V(1(?:alpha\d+|beta\d+)?)([A-Z]\w+)", name)
    if parts is None:
        raise AttributeError(f"{__name__} has no {name}")

    version, kind = f"v{parts[1]}", parts[2]
    candidates = ["v1alpha3-1.31", "v1alpha3"] if version == "v1alpha3" else [version]
    for candidate in candidates:
        if candidate in VERSIONS and kind in classes(candidate):
            return classes(candidate)[kind]

    shared = classes("v1").get(kind)
    if version != "v1" and shared and shared.__module__.endswith(".meta"):
        raise AttributeError(
            f"{name}: this class has no versions of its own; it is called V1{kind}"
        )
    raise AttributeError(f"{__name__} has no {name}")
