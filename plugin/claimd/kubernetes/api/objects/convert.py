"""Documents from one version of the resource API to another, with a note for what is lost.

Every version goes through the shape of v1: a step up, a step down, and then the target's field
tables say what they have no place for. What v1alpha2 meant is in `classic`. No files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..document import Document
from . import classic, models, plain, traced
from .meta import Object
from .shapes import Shape
from .traced import Lose, Traced

TARGETS = tuple(version for version in models.VERSIONS if version != "v1alpha2")
# What a request of v1beta1 has beside the fields that are in v1's `exactly`.
FLAT = ("name", "firstAvailable")


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
    """`document` is None if nothing in the target says any of it."""

    document: Document | None
    notes: tuple[Note, ...] = ()


class NotConvertible(ValueError):
    """There is no such version or kind, or not in the target."""


def convert(document: Document, to: str, among: Sequence[Document] = ()) -> Converted:
    """The document in another version; the one given is not changed.

    `among` are the documents beside it, which v1alpha2's may refer to. Documents of other APIs come
    back as they are, but for pods that name their claims as 1.30 had it. NotConvertible if there
    is no such version or kind; `plain.Invalid` for fields that are not what the document's own
    version says.
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

    source = _class_of(version, kind)
    _check_types(source, document, required=version == "v1alpha2")

    notes: list[Note] = []

    def note(path: str, text: str, lost: bool = True) -> None:
        notes.append(Note(path, text, lost))

    doc = traced.trace(Shape("struct", struct=source), document, "")
    if version == "v1alpha2":
        doc = classic.up(doc, among, note)
        if doc is None:
            return Converted(None, tuple(notes))
    elif version != to:
        UP[version](doc)
    _check_kind(doc["kind"], to)
    if version != to:
        DOWN[to](doc, note)
    result = _pruned(doc, to, notes)
    return Converted(result, tuple(notes))


def reshape(document: Document, to: str) -> Document:
    """The same for an object of a later version than v1alpha2 that is known to keep its rules.

    Nothing is looked for that somebody should know; it takes a fraction of the time.
    NotConvertible as above.
    """
    _, _, version = str(document["apiVersion"]).rpartition("/")
    kind = document["kind"]
    shape = Shape("struct", struct=_class_of(version, kind))
    doc = traced.trace(shape, document, "")
    if version != to:
        UP[version](doc)
    _check_kind(kind, to)
    if version != to:
        DOWN[to](doc, _lose_nothing)
    doc["apiVersion"] = f"{models.GROUP}/{to.partition('-')[0]}"
    target = Shape("struct", struct=models.kinds(to)[kind])
    result: Document = traced.prune(target, doc, _lose_nothing, "")
    return result


def _lose_nothing(path: str, why: str) -> None:
    """Nobody asked what is lost."""


def convert_object(obj: Object, version: str, to: str) -> tuple[Object, tuple[Note, ...]]:
    """The same for a typed object of a version, checked against the target's rules."""
    kind = type(obj).__name__
    document = obj.to_dict()
    document["apiVersion"] = f"{models.GROUP}/{version.partition('-')[0]}"
    document["kind"] = kind

    converted = convert(document, to)
    if converted.document is None:
        raise NotConvertible(f"{to} has nothing like {kind}")
    target = models.kinds(to)[converted.document["kind"]]
    return target.from_dict(converted.document), converted.notes


def name_of(document: Any) -> str:
    """What people call it: ResourceClaim default/gpu. Empty if it is no object."""
    if not isinstance(document, dict) or not document.get("kind"):
        return ""
    metadata = document.get("metadata") or {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    name = "/".join(str(part) for part in parts if part)
    return f"{document['kind']} {name}".strip()


def _class_of(version: str, kind: str) -> type[Object]:
    """The class that such documents have in their own version."""
    # One of the models is a release's, and no version that a document could name.
    if version not in UP and version != "v1alpha2":
        raise NotConvertible(f"{models.GROUP}/{version} is not a version that this knows")
    source = models.kinds(version).get(kind)
    if source is None and version == "v1alpha3":
        source = models.kinds("v1alpha3-1.31").get(kind)
    if source is None:
        raise NotConvertible(f"{models.GROUP}/{version} has no {kind or 'document without a kind'}")
    return source


def _check_types(source: type[Object], document: Document, required: bool) -> None:
    """Invalid if a field has the wrong type, or is required and missing.

    What is only missing may be left to the target to say. To be understood, v1alpha2 needs it.
    """
    problems: list[plain.Problem] = []

    def report(path: str, text: str) -> None:
        if required or text != plain.REQUIRED:
            problems.append(plain.Problem(path, text))

    plain.read(Shape("struct", struct=source), document, "", True, report)
    if problems:
        raise plain.Invalid(source.__name__, problems)


def _check_kind(kind: str, to: str) -> None:
    if kind in models.kinds(to):
        return
    places = [name for name in TARGETS if kind in models.kinds(name)]
    elsewhere = f"; it is in {', '.join(places)}" if places else ", nor has any version since"
    raise NotConvertible(f"{to} has no {kind}{elsewhere}")


def _pruned(doc: Traced, to: str, notes: list[Note]) -> Document:
    """What the target has fields for, with notes for the rest and for what it would refuse."""
    target = models.kinds(to)[doc["kind"]]
    doc["apiVersion"] = f"{models.GROUP}/{to.partition('-')[0]}"

    def lose(path: str, why: str) -> None:
        notes.append(Note(path, why))

    shape = Shape("struct", struct=target)
    result: Document = traced.prune(shape, doc, lose, f"{to} has no such field")
    try:
        target.from_dict(result)
    except plain.Invalid as invalid:
        for problem in invalid.problems:
            text = f"{to} does not take this: {problem.text}"
            notes.append(Note(problem.path, text, lost=False))
    return result


def _convert_list(document: Document, to: str, among: Sequence[Document]) -> Converted:
    """Item by item; those of a typed list have their version and kind from the list."""
    kind = str(document["kind"]).removesuffix("List")
    inherited = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
    complete: list[Document] = []
    for index, item in enumerate(document["items"]):
        if not isinstance(item, dict):
            raise NotConvertible(f"items[{index}]: expected an object, got {item!r:.60}")
        complete.append(inherited | item)

    items: list[Document] = []
    notes: list[Note] = []
    for index, whole in enumerate(complete):
        converted = convert(whole, to, [*among, *complete])
        notes += [replace(note, path=f"items[{index}].{note.path}") for note in converted.notes]
        if converted.document:
            items.append(converted.document)

    result = {name: value for name, value in document.items() if name != "items"}
    if kind and items:
        result["apiVersion"] = items[0]["apiVersion"]
        result["kind"] = f"{items[0]['kind']}List"
    result["items"] = items
    return Converted(result, tuple(notes))


# ---------------------------------------------------------------- steps to v1 and back


def _unchanged(doc: Traced, lose: Lose | None = None) -> None:
    """The shape is v1's already."""


def _up(doc: Traced) -> None:
    for request in _requests(doc):
        exactly = Traced()
        for name in list(request):
            if name not in FLAT:
                request.move(name, exactly)
        if exactly:
            request.put("exactly", exactly, request.path("name").rpartition(".")[0])

    # Empty is the same as absent in the older versions, and an error in the newer.
    spec = _slice_spec(doc)
    for name in ("nodeName", "allNodes"):
        if name in spec and not spec[name]:
            del spec[name]

    for device in spec.get("devices", ()):
        basic = device.pop("basic", Traced())
        for name in list(basic):
            basic.move(name, device)


def _up_alpha(doc: Traced) -> None:
    _up(doc)
    for capacity in _capacities(doc):
        for name, amount in capacity.items():
            capacity[name] = Traced({"value": amount}, {"value": capacity.path(name)})


def _down(doc: Traced, lose: Lose) -> None:
    for request in _requests(doc):
        exactly = request.pop("exactly", Traced())
        for name in list(exactly):
            exactly.move(name, request)

    for device in _slice_spec(doc).get("devices", ()):
        basic = Traced()
        for name in list(device):
            if name != "name":
                device.move(name, basic)
        device["basic"] = basic


def _down_alpha(doc: Traced, lose: Lose) -> None:
    for capacity in _capacities(doc):
        for name, value in capacity.items():
            for other in value.keys() - {"value"}:
                lose(value.path(other), "a capacity is only an amount there")
            capacity[name] = value.get("value", "0")  # as Go has a quantity that is not there
    _down(doc, lose)


def _requests(doc: Traced) -> list[Traced]:
    """Of a claim or a template."""
    spec = doc.get("spec", {})
    if doc["kind"] == "ResourceClaimTemplate":
        spec = spec.get("spec", {})
    elif doc["kind"] != "ResourceClaim":
        return []
    requests: list[Traced] = spec.get("devices", {}).get("requests", [])
    return requests


def _slice_spec(doc: Traced) -> dict[str, Any]:
    """Empty for what is no slice."""
    spec: dict[str, Any] = doc.get("spec", {}) if doc["kind"] == "ResourceSlice" else {}
    return spec


def _capacities(doc: Traced) -> list[Traced]:
    """Of a slice's devices in the shape of v1."""
    devices = _slice_spec(doc).get("devices", [])
    return [device["capacity"] for device in devices if "capacity" in device]


UP: dict[str, Callable[[Traced], None]] = {
    "v1": _unchanged,
    "v1beta2": _unchanged,
    "v1beta1": _up,
    "v1alpha3": _up_alpha,
}
DOWN: dict[str, Callable[[Traced, Lose], None]] = {
    "v1": _unchanged,
    "v1beta2": _unchanged,
    "v1beta1": _down,
    "v1alpha3": _down_alpha,
    "v1alpha3-1.31": _down_alpha,
}
