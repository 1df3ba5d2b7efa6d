"""The reference of the resource API: every class and field of every version, for docs/api.md."""

from __future__ import annotations

from collections.abc import Collection

from claimd.kubernetes.api.objects import descriptions, models
from claimd.kubernetes.api.objects.model import Model
from claimd.kubernetes.api.objects.shapes import Field, fields_of
from tests.docs.common import code, table

TITLES = {"v1alpha3-1.31": "v1alpha3 (1.31)"}
ALL = "all"


def reference() -> str:
    """A section for each class, whose rows are the fields of all versions."""
    by_name: dict[str, dict[str, type[Model]]] = {}
    for version in models.VERSIONS:
        for name, cls in models.classes(version).items():
            by_name.setdefault(name, {})[version] = cls

    sections = []
    for name, classes in by_name.items():
        if name.endswith("List"):
            continue
        lines = [f"## {name}", ""]
        abouts: dict[str, list[str]] = {}
        for version, cls in classes.items():
            abouts.setdefault(descriptions.describe_class(cls), []).append(version)
        for about, versions in abouts.items():
            lines += [f"{about} Versions: {_versions(versions, models.VERSIONS)}.", ""]
        lines.append(table(["field", "type", "description", "versions"], _rows(classes)))
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def _rows(classes: dict[str, type[Model]]) -> list[list[str]]:
    """The rows of a class. A field has several if its type or its limits have changed."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for version, cls in classes.items():
        for name, field in fields_of(cls).items():
            about = descriptions.describe_field(cls, field)
            rows.setdefault((name, _type(field), about), []).append(version)
    fields = list(dict.fromkeys(name for name, _, _ in rows))
    in_order = sorted(rows.items(), key=lambda row: fields.index(row[0][0]))
    return [
        [code(name), type_, about, _versions(versions, classes)]
        for (name, type_, about), versions in in_order
    ]


def _type(field: Field) -> str:
    name = descriptions.type_name(field.shape)
    return f"{name}, required" if field.required else name


def _versions(some: list[str], of_all: Collection[str]) -> str:
    if len(some) == len(of_all):
        return ALL
    return ", ".join(TITLES.get(version, version) for version in some)
