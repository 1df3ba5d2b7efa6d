"""Converts documents between versions of the resource API, with notes about what is lost.

A document goes up to the shape of v1, and then down to the target. Then the fields that the
target's classes do not have are removed. `classic` has the step up from v1alpha2.
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
# The fields of a request that v1 has at the same place as v1beta1. v1 nests all others in
# `exactly`.
FLAT = ("name", "firstAvailable")


@dataclass(frozen=True)
class Note:
    """A message for a person about one value. `lost` is True if the result does not contain it."""

    path: str
    text: str
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {'lost: ' if self.lost else ''}{self.text}"


@dataclass(frozen=True)
class Converted:
    """The result of a conversion. `document` is None if the target has nothing like the source."""

    document: Document | None
    notes: tuple[Note, ...] = ()


class NotConvertible(ValueError):
    """The version or the kind is unknown, or the target does not have the kind."""


def convert(document: Document, to: str, among: Sequence[Document] = ()) -> Converted:
    """Returns the document in another version. The original is not changed.

    `among` are the other documents of the file, to which one of v1alpha2 may refer. A document of
    another API is returned as it is, except for pods that name their claims in the way of 1.30.

    Raises NotConvertible if the version or the kind is missing or unknown, and `plain.Invalid` if a field does
    not have the type that the document's own version requires.
    """
    if to not in TARGETS:
        raise NotConvertible(f"expected one of {', '.join(TARGETS)} to convert to, got {to!r}")
    if not isinstance(document, dict):
        raise NotConvertible(f"expected an object with apiVersion and kind, got {document!r:.60}")
    for name in ("apiVersion", "kind"):
        if not document.get(name):
            raise NotConvertible(f"the document has no {name}")

    group, _, version = str(document["apiVersion"]).rpartition("/")
    kind = str(document["kind"])
    if isinstance(document.get("items"), list) and kind.endswith("List"):
        return _convert_list(document, to, among)
    if group != models.GROUP:
        return Converted(classic.with_flat_pod_claims(document))

    # v1alpha2 can be understood only with all its required fields.
    source = _class_of(version, kind)
    _check_types(source, document, required=version == "v1alpha2")

    notes: list[Note] = []

    def note(path: str, text: str, lost: bool = True) -> None:
        notes.append(Note(path, text, lost))

    # From here on each value knows its path in the source, for the notes.
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
    result = _prune(doc, to, notes)
    return Converted(result, tuple(notes))


def reshape(document: Document, to: str) -> Document:
    """Converts an object of a later version than v1alpha2 that is known to be valid.

    There are no checks and no notes, so this takes a fraction of the time of `convert`. Raises
    NotConvertible as `convert` does.
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
    """Ignores the report, because `reshape` makes no notes."""


def convert_object(obj: Object, version: str, to: str) -> tuple[Object, tuple[Note, ...]]:
    """Converts an object of a version, and checks the result against the target's rules.

    Raises as `convert` does, and Invalid if the result breaks a rule.
    """
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
    """Returns a name for people, such as ResourceClaim default/gpu, or "" for other data."""
    if not isinstance(document, dict) or not document.get("kind"):
        return ""
    metadata = document.get("metadata") or {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    name = "/".join(str(part) for part in parts if part)
    return f"{document['kind']} {name}".strip()


def _class_of(version: str, kind: str) -> type[Object]:
    """Returns the class of such a document. Raises NotConvertible if there is no such class."""
    # "v1alpha3-1.31" is a version with classes, but no document can name it.
    if version not in UP and version != "v1alpha2":
        raise NotConvertible(f"{models.GROUP}/{version} is not a version that this knows")
    source = models.kinds(version).get(kind)
    if source is None and version == "v1alpha3":
        source = models.kinds("v1alpha3-1.31").get(kind)
    if source is None:
        raise NotConvertible(f"{models.GROUP}/{version} has no {kind}")
    return source


def _check_types(source: type[Object], document: Document, required: bool) -> None:
    """Raises Invalid if a field has the wrong type, or with `required` if it is missing.

    Without `required` the check against the target's rules finds the missing fields.
    """
    problems: list[plain.Problem] = []

    def report(path: str, text: str) -> None:
        if required or text != plain.REQUIRED:
            problems.append(plain.Problem(path, text))

    plain.read_value(Shape("struct", struct=source), document, "", True, report)
    if problems:
        raise plain.Invalid(source.__name__, problems)


def _check_kind(kind: str, to: str) -> None:
    if kind in models.kinds(to):
        return
    places = [name for name in TARGETS if kind in models.kinds(name)]
    elsewhere = f"; it is in {', '.join(places)}" if places else ", nor has any version since"
    raise NotConvertible(f"{to} has no {kind}{elsewhere}")


def _prune(doc: Traced, to: str, notes: list[Note]) -> Document:
    """Removes the fields that the target does not have, and sets its version.

    Adds a note for each field that is removed, and for each rule of the target that the rest
    breaks.
    """
    target = models.kinds(to)[doc["kind"]]
    doc["apiVersion"] = f"{models.GROUP}/{to.partition('-')[0]}"

    def lose(path: str, why: str) -> None:
        notes.append(Note(path, why))

    shape = Shape("struct", struct=target)
    result: Document = traced.prune(shape, doc, lose, f"{to} has no such field")

    # The document is not refused here: people can still correct it.
    try:
        target.from_dict(result)
    except plain.Invalid as invalid:
        for problem in invalid.problems:
            text = f"{to} does not take this: {problem.text}"
            notes.append(Note(problem.path, text, lost=False))
    return result


def _convert_list(document: Document, to: str, among: Sequence[Document]) -> Converted:
    """Converts a list item by item."""
    # The items of a typed list have neither version nor kind of their own.
    kind = str(document["kind"]).removesuffix("List")
    inherited = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
    complete: list[Document] = []
    for index, item in enumerate(document["items"]):
        if not isinstance(item, dict):
            raise NotConvertible(f"items[{index}]: expected an object, got {item!r:.60}")
        complete.append(inherited | item)

    # The items may refer to each other.
    items: list[Document] = []
    notes: list[Note] = []
    for index, item in enumerate(complete):
        converted = convert(item, to, [*among, *complete])
        for note in converted.notes:
            notes.append(replace(note, path=f"items[{index}].{note.path}"))
        if converted.document:
            items.append(converted.document)

    result = {name: value for name, value in document.items() if name != "items"}
    if kind and items:
        result["apiVersion"] = items[0]["apiVersion"]
        result["kind"] = f"{items[0]['kind']}List"
    result["items"] = items
    return Converted(result, tuple(notes))


# ---------------------------------------------------------------- steps to v1 and back


def _keep(doc: Traced, lose: Lose | None = None) -> None:
    """Does nothing: the version has the shape of v1."""


def _up(doc: Traced) -> None:
    """Changes v1beta1 to the shape of v1."""
    # v1 nests the fields of a request for one kind of device in `exactly`.
    for request in _requests(doc):
        exactly = Traced()
        for name in list(request):
            if name not in FLAT:
                request.move(name, exactly)
        if exactly:
            request.add("exactly", exactly, request.path("name").rpartition(".")[0])

    # In the older versions an empty value counts as absent. In v1 it is an error.
    spec = _slice_spec(doc)
    for name in ("nodeName", "allNodes"):
        if name in spec and not spec[name]:
            del spec[name]

    # v1 has no `basic`.
    for device in spec.get("devices", ()):
        basic = device.pop("basic", Traced())
        for name in list(basic):
            basic.move(name, device)


def _up_alpha(doc: Traced) -> None:
    """Changes v1alpha3 to the shape of v1: a capacity, an amount there, becomes an object."""
    _up(doc)
    for capacity in _capacities(doc):
        for name, amount in capacity.items():
            capacity[name] = Traced({"value": amount}, {"value": capacity.path(name)})


def _down(doc: Traced, lose: Lose) -> None:
    """Changes the shape of v1 to v1beta1."""
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
    """Changes the shape of v1 to v1alpha3."""
    for capacity in _capacities(doc):
        for name, value in capacity.items():
            for other in value.keys() - {"value"}:
                lose(value.path(other), "a capacity is only an amount there")
            # In Go a quantity that is absent is 0.
            capacity[name] = value.get("value", "0")
    _down(doc, lose)


def _requests(doc: Traced) -> list[Traced]:
    """Returns the requests of a claim or a template, and none for other kinds."""
    spec = doc.get("spec", {})
    if doc["kind"] == "ResourceClaimTemplate":
        spec = spec.get("spec", {})
    elif doc["kind"] != "ResourceClaim":
        return []
    requests: list[Traced] = spec.get("devices", {}).get("requests", [])
    return requests


def _slice_spec(doc: Traced) -> dict[str, Any]:
    """Returns the spec of a slice, or an empty map for other kinds."""
    spec: dict[str, Any] = doc.get("spec", {}) if doc["kind"] == "ResourceSlice" else {}
    return spec


def _capacities(doc: Traced) -> list[Traced]:
    """Returns the capacities of a slice's devices, which have the shape of v1."""
    devices = _slice_spec(doc).get("devices", [])
    return [device["capacity"] for device in devices if "capacity" in device]


UP: dict[str, Callable[[Traced], None]] = {
    "v1": _keep,
    "v1beta2": _keep,
    "v1beta1": _up,
    "v1alpha3": _up_alpha,
}
DOWN: dict[str, Callable[[Traced, Lose], None]] = {
    "v1": _keep,
    "v1beta2": _keep,
    "v1beta1": _down,
    "v1alpha3": _down_alpha,
    "v1alpha3-1.31": _down_alpha,
}
