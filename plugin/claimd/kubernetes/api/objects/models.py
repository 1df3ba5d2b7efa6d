"""The versions by name, and every class under the name that the official Python client gives it.

`models.V1alpha3ResourceClaimStatus` is such a name. A name with V1alpha3 means the class of
Kubernetes 1.31, or the one of a later release if 1.31 has none. The later form of a class that both
have is in the module `v1alpha3`.
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
    """A module of a version."""

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
    """Returns the classes of the documents of a version, by kind."""
    return {kind.__name__: kind for kind in VERSIONS[version].KINDS}


@cache
def classes(version: str) -> dict[str, type[Model]]:
    """Returns the kinds and the lists of a version, and every class in their fields, by name."""
    found: dict[str, type[Model]] = {}
    for root in (*VERSIONS[version].KINDS, *VERSIONS[version].LISTS):
        for cls in _classes_within(root):
            found[cls.__name__] = cls
    return found


def _classes_within(cls: type[Model]) -> Iterator[type[Model]]:
    yield cls
    for field in fields_of(cls).values():
        # The class may be the item of a list or of a map.
        shape: Shape | None = field.shape
        while shape:
            if shape.struct and issubclass(shape.struct, Model):
                yield from _classes_within(shape.struct)
            shape = shape.item


def __getattr__(name: str) -> Any:
    """Returns the class with this name in the official Python client.

    If the core API has a class of the same name, the client's name begins with ResourceV1.
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
