"""Documents from one version of the resource API to another, with a note for everything that cannot
come along.

Every version goes through the shape of v1: a step up, a step down, and then the target's field
tables say what they have no place for. What v1alpha2 meant is in `classic`. No files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import classic, models, plain, traced
from .meta import Object
from .shapes import Shape
from .traced import Traced

TARGETS = tuple(version for version in models.VERSIONS if version != "v1alpha2")
FLAT = ("name", "firstAvailable")  # what a v1beta1 request has beside the fields of v1's `exactly`


@dataclass(frozen=True)
class Note:
    """Something that a person should know. `lost` means that the result does not say it."""

    path: str
    text: str
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {'lost: ' if self.lost else ''}{self.text}"


@dataclass(frozen=True)
class Converted:
    document: dict[str, Any] | None  # None: nothing in the target says any of it
    notes: tuple[Note, ...] = ()


class NotConvertible(ValueError):
    """There is no such version or kind, or not in the target."""


def convert(document: dict[str, Any], to: str, among: Sequence[dict[str, Any]] = ()) -> Converted:
    """The document in another version. `among` are the documents beside it, which v1alpha2's may
    refer to.

    Documents of other APIs come back as they are, but for pods that name their claims as 1.30 had
    it. A document whose fields are not what its own version says is `plain.Invalid`.
    """
    if to not in TARGETS:
        raise NotConvertible(f"expected one of {', '.join(TARGETS)} to convert to, got {to!r}")
    if not isinstance(document, dict):
        raise NotConvertible(f"expected an object with apiVersion and kind, got {document!r:.60}")
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    kind = str(document.get("kind", ""))
    if isinstance(document.get("items"), list) and kind.endswith("List"):
        return _convert_list(document, to, among)
    if group != models.GROUP:
        return Converted(classic.with_flat_pod_claims(document))
    if version not in models.VERSIONS:
        raise NotConvertible(f"{models.GROUP}/{version} is not a version that this knows")
    source = models.kinds(version).get(kind) or (
        models.kinds("v1alpha3-1.31").get(kind) if version == "v1alpha3" else None
    )
    if not source:
        raise NotConvertible(f"{models.GROUP}/{version} has no {kind or 'document without a kind'}")
    notes: list[Note] = []

    def note(path: str, text: str, lost: bool = True) -> None:
        notes.append(Note(path, text, lost))

    _check_types(source, document, whole=version == "v1alpha2")
    doc = traced.trace(Shape("struct", struct=source), document, "")
    if version == "v1alpha2":
        made = classic.up(doc, among, note)
        if made is None:
            return Converted(None, tuple(notes))
        doc = made
    elif version != to:
        UP[version](doc)
    return _finish(doc, version, to, notes)


def name_of(document: Any) -> str:
    """What people call it: ResourceClaim default/gpu. Empty if it is no object."""
    if not isinstance(document, dict) or not document.get("kind"):
        return ""
    metadata = document.get("metadata") or {}
    return f"{document['kind']} {'/'.join(str(metadata[n]) for n in ('namespace', 'name') if metadata.get(n))}".strip()


def convert_object(obj: Object, version: str, to: str) -> tuple[Object, tuple[Note, ...]]:
    """The same for a typed object of a version, checked against the target's rules."""
    document = obj.to_dict() | {
        "apiVersion": f"{models.GROUP}/{version.partition('-')[0]}",
        "kind": type(obj).__name__,
    }
    converted = convert(document, to)
    if converted.document is None:
        raise NotConvertible(f"{to} has nothing like {type(obj).__name__}")
    return models.kinds(to)[converted.document["kind"]].from_dict(
        converted.document
    ), converted.notes


def _finish(doc: Traced, version: str, to: str, notes: list[Note]) -> Converted:
    kind = doc["kind"]
    target = models.kinds(to).get(kind)
    if not target:
        places = [name for name in TARGETS if kind in models.kinds(name)]
        there = f"; it is in {', '.join(places)}" if places else ", nor has any version since"
        raise NotConvertible(f"{to} has no {kind}{there}")
    if version != to:
        DOWN[to](doc, lambda path, text: notes.append(Note(path, text)))
    api = to.partition("-")[0]
    doc["apiVersion"] = f"{models.GROUP}/{api}"
    shape = Shape("struct", struct=target)
    result = traced.prune(
        shape, doc, lambda path, text: notes.append(Note(path, text)), f"{to} has no such field"
    )
    try:
        target.from_dict(result)
    except plain.Invalid as invalid:
        notes += [
            Note(problem.path, f"{to} does not take this: {problem.text}", lost=False)
            for problem in invalid.problems
        ]
    return Converted(result, tuple(notes))


def _convert_list(document: dict[str, Any], to: str, among: Sequence[dict[str, Any]]) -> Converted:
    """Item by item; those of a typed list have their version and kind from the list."""
    items, notes = [], []
    kind = str(document["kind"]).removesuffix("List")
    inherited = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
    whole = [inherited | item for item in document["items"]]
    for index, item in enumerate(whole):
        converted = convert(item, to, [*among, *whole])
        notes += [replace(note, path=f"items[{index}].{note.path}") for note in converted.notes]
        items += [converted.document] if converted.document else []
    head = {name: value for name, value in document.items() if name != "items"}
    if kind and items:
        head |= {"apiVersion": items[0]["apiVersion"], "kind": f"{items[0]['kind']}List"}
    return Converted(head | {"items": items}, tuple(notes))


def _check_types(source: type[Object], document: dict[str, Any], whole: bool) -> None:
    """What is only missing is for the target to say, unless v1alpha2 is to be understood."""
    problems: list[plain.Problem] = []
    shape = Shape("struct", struct=source)
    plain.read(
        shape, document, "", True, lambda path, text: problems.append(plain.Problem(path, text))
    )
    wrong = [problem for problem in problems if whole or problem.text != plain.REQUIRED]
    if wrong:
        raise plain.Invalid(source.__name__, wrong)


# ---------------------------------------------------------------- steps to v1 and back

Lose = Callable[[str, str], None]


def _nothing(doc: Traced, lose: Lose | None = None) -> None:
    """The shape is v1's already."""


def _up(doc: Traced) -> None:
    for request in _requests(doc):
        exactly = Traced()
        for name in [name for name in request if name not in FLAT]:
            request.move(name, exactly)
        if exactly:
            request.put("exactly", exactly, request.path("name").rpartition(".")[0])
    spec = doc.get("spec", {}) if doc["kind"] == "ResourceSlice" else {}
    for name in ("nodeName", "allNodes"):
        if name in spec and not spec[name]:
            del spec[name]  # the same as absent in the older versions, an error in the newer
    for device in spec.get("devices", ()):
        basic = device.pop("basic", Traced())
        for name in list(basic):
            basic.move(name, device)


def _up_alpha(doc: Traced) -> None:
    _up(doc)
    for capacity in _capacities(doc):
        for name, value in capacity.items():
            capacity[name] = Traced({"value": value}, {"value": capacity.path(name)})


def _down(doc: Traced, lose: Lose) -> None:
    for request in _requests(doc):
        exactly = request.pop("exactly", Traced())
        for name in list(exactly):
            exactly.move(name, request)
    for device in doc.get("spec", {}).get("devices", ()) if doc["kind"] == "ResourceSlice" else ():
        basic = Traced()
        for name in [name for name in device if name != "name"]:
            device.move(name, basic)
        device["basic"] = basic


def _down_alpha(doc: Traced, lose: Lose) -> None:
    for capacity in _capacities(doc):
        for name, value in capacity.items():
            for other in value.keys() - {"value"}:
                lose(value.path(other), "a capacity is only an amount there")
            capacity[name] = value["value"]
    _down(doc, lose)


def _requests(doc: Traced) -> list[Traced]:
    spec = doc.get("spec", {})
    if doc["kind"] == "ResourceClaimTemplate":
        spec = spec.get("spec", {})
    found: list[Traced] = (
        spec.get("devices", {}).get("requests", [])
        if doc["kind"].startswith("ResourceClaim")
        else []
    )
    return found


def _capacities(doc: Traced) -> list[Traced]:
    """Of a slice's devices in the shape of v1."""
    devices = doc.get("spec", {}).get("devices", []) if doc["kind"] == "ResourceSlice" else []
    return [device["capacity"] for device in devices if "capacity" in device]


UP: dict[str, Callable[[Traced], None]] = {
    "v1": _nothing,
    "v1beta2": _nothing,
    "v1beta1": _up,
    "v1alpha3": _up_alpha,
}
DOWN: dict[str, Callable[[Traced, Lose], None]] = {
    "v1": _nothing,
    "v1beta2": _nothing,
    "v1beta1": _down,
    "v1alpha3": _down_alpha,
    "v1alpha3-1.31": _down_alpha,
}
