"""The fields that this cluster ignores: finds them in an object, and describes them in messages.

The table simulated_fields.toml lists every field, with a message for those that are ignored. The
functions do no I/O except for reading that table. The API server sends the messages as warnings,
and a controller sends them as Events.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from claimd.kubernetes.api.document import Document

DONE, IGNORED, STORED, SEE = "done", "ignored", "stored", "see"
_FILE = Path(__file__).with_suffix(".toml")
_PATHS_SHOWN = 4  # fields that one sentence names
_ASKED_BY_PRESENCE = ("emptyDir",)  # means something even if it is empty
# For a kind that the API server only stores.
KIND_IS_STORED = "objects of this kind are stored, and no part of claimd uses them"
_RUN_BY_OTHERS = "kubernetes.io/config.mirror"  # the annotation of mirror pods
# The type in the table, by apiVersion and kind.
KINDS = {
    ("v1", "Pod"): "core/v1.Pod",
    ("v1", "Node"): "core/v1.Node",
    ("v1", "Service"): "core/v1.Service",
    ("v1", "Namespace"): "core/v1.Namespace",
    ("v1", "ConfigMap"): "core/v1.ConfigMap",
    ("v1", "Secret"): "core/v1.Secret",
    ("v1", "ServiceAccount"): "core/v1.ServiceAccount",
    ("apps/v1", "Deployment"): "apps/v1.Deployment",
    ("apps/v1", "ReplicaSet"): "apps/v1.ReplicaSet",
    ("apps/v1", "DaemonSet"): "apps/v1.DaemonSet",
    ("batch/v1", "Job"): "batch/v1.Job",
    ("scheduling.k8s.io/v1beta1", "PodGroup"): "scheduling/v1beta1.PodGroup",
    ("scheduling.k8s.io/v1", "PriorityClass"): "scheduling/v1.PriorityClass",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The handling of one field.

    `words` is half a sentence, or the type whose rows apply to the value. A value counts as
    ignored unless it is empty, or one of `unless`, or next to the field `next_to`.
    """

    answer: str
    words: str
    unless: tuple[Any, ...] = ()
    next_to: str = ""


@functools.cache
def table() -> Mapping[str, Mapping[str, Row]]:
    """Returns the rows by type and field."""
    with _FILE.open("rb") as file:
        document = tomllib.load(file)
    return {
        type_: {name: _row(entry) for name, entry in rows.items()}
        for type_, rows in document.items()
    }


def _row(entry: str | dict[str, Any]) -> Row:
    if isinstance(entry, dict):
        unless = tuple(entry.get("unless", ()))
        return Row(
            answer=IGNORED, words=entry["ignored"], unless=unless, next_to=entry.get("next_to", "")
        )
    if entry.startswith(f"{SEE} "):
        return Row(answer=SEE, words=entry.removeprefix(f"{SEE} "))
    answer, _, words = entry.partition(": ")
    return Row(answer=answer, words=words)


def sentences(obj: Document) -> list[str]:
    """Returns the requests of the object that the cluster ignores, one sentence for each reason.

    Unknown kinds, values of an unexpected shape, and mirror pods are skipped.
    """
    type_ = KINDS.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if type_ is None or _RUN_BY_OTHERS in annotations:
        return []

    paths: dict[str, list[str]] = {}
    for path, reason in _find_unsimulated(type_, obj, ""):
        paths.setdefault(reason, []).append(path)
    return [f"not simulated: {_join_paths(found)}: {reason}" for reason, found in paths.items()]


def _find_unsimulated(type_: str, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields the paths of ignored fields, each with the reason."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_unsimulated(type_, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return

    rows = table()[type_]
    for name, below in value.items():
        row = rows.get(name)
        is_blank = below in (None, "", [], {}) and name not in _ASKED_BY_PRESENCE
        if row is None or is_blank:
            continue
        below_path = f"{path}.{name}" if path else name
        if row.answer == SEE:
            yield from _find_unsimulated(row.words, below, below_path)
        elif row.answer == IGNORED and not (
            _is_one_of(below, row.unless) or (row.next_to and value.get(row.next_to))
        ):
            yield below_path, row.words


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Returns True if one of the values is equal and of the same type: 0 is not False."""
    return any(type(value) is type(item) and value == item for item in values)


def _join_paths(paths: list[str]) -> str:
    shown = ", ".join(paths[:_PATHS_SHOWN])
    more = len(paths) - _PATHS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
