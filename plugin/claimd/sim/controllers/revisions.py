"""ControllerRevisions: the templates that a StatefulSet or a DaemonSet has had, where kubectl looks
for them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from . import templates
from .objects import Objects, controller_reference, name_suffix

POD_LABEL = "controller-revision-hash"  # of a pod: which revision it is of
# Of a revision: what its template comes to.
_HASH_LABELS = {
    "StatefulSet": "controller.kubernetes.io/hash",
    "DaemonSet": POD_LABEL,
}
_KEPT = 10  # that no pod has, where nobody says how many


class History:
    """The revisions of one parent, the oldest first."""

    def __init__(self, objects: Objects, kind: str, parent: Document) -> None:
        self._kind, self._parent = kind, parent
        found = templates.children(objects, "controllerrevisions", parent)
        self.revisions = sorted(found, key=number_of)

    @functools.cached_property
    def update(self) -> Document | None:
        """The revision of the template that is to be."""
        data = templates.without_empty(_data(self._parent["spec"]["template"]))
        for revision in reversed(self.revisions):
            if templates.without_empty(revision["data"]) == data:
                return revision
        return None

    def revise(self) -> Request | None:
        """The template becomes the latest revision, if it is not yet."""
        latest = number_of(self.revisions[-1]) if self.revisions else 0
        if self.update is None:
            return self._create(latest + 1)
        if self.update is not self.revisions[-1]:
            # One of before counts as new, as it does for kubectl's undo.
            return requests.update("controllerrevisions", self.update | {"revision": latest + 1})
        return None

    def forget_old(self, live: Collection[str]) -> Iterator[Request]:
        """The oldest beyond those that are to be kept; not those of these names."""
        old = [one for one in self.revisions if templates.name_of(one) not in live]
        limit = self._parent["spec"].get("revisionHistoryLimit")
        for revision in old[: max(len(old) - (_KEPT if limit is None else limit), 0)]:
            yield requests.delete("controllerrevisions", revision)

    def _create(self, number: int) -> Request:
        metadata, template = self._parent["metadata"], self._parent["spec"]["template"]
        digest = digest_of(template)
        labels = (template.get("metadata") or {}).get("labels") or {}
        reference = controller_reference("apps/v1", self._kind, self._parent)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{metadata['name'][:223]}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels | {_HASH_LABELS[self._kind]: digest},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [reference | {"blockOwnerDeletion": True}],
            },
            "data": _data(template),
            "revision": number,
        }
        return Request(
            method="POST",
            resource="controllerrevisions",
            namespace=metadata["namespace"],
            body=body,
        )


def digest_of(template: Document) -> str:
    """What tells its revision from others, in the name and in a label."""
    text = json.dumps(templates.without_empty(_data(template)), sort_keys=True)
    return name_suffix(text, 9)


def template_of(revision: Document) -> Document:
    """The template that was kept."""
    template = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def number_of(revision: Document) -> int:
    return int(revision.get("revision") or 0)


def hash_of(revision: Document) -> str:
    """As the pods of a DaemonSet are labelled with it."""
    return str((revision["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def label_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def _data(template: Document) -> Document:
    """What a revision keeps: a patch that brings the template back."""
    return {"spec": {"template": template | {"$patch": "replace"}}}
