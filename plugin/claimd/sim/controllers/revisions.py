"""ControllerRevisions: the stored templates of a StatefulSet or DaemonSet, which kubectl reads."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator

from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from . import templates
from .objects import Objects, controller_reference, name_suffix

POD_LABEL = "controller-revision-hash"  # of a pod: the name or hash of its revision
# The label of a revision that has the hash of its template, by the parent's kind.
_HASH_LABELS = {
    "StatefulSet": "controller.kubernetes.io/hash",
    "DaemonSet": POD_LABEL,
}
_KEPT = 10  # old revisions, unless the parent sets a limit


class History:
    """The revisions of one parent, oldest first."""

    def __init__(self, objects: Objects, kind: str, parent: Document) -> None:
        self._kind, self._parent = kind, parent
        revisions = templates.children(objects, "controllerrevisions", parent)
        self.revisions = sorted(revisions, key=number_of)

    @functools.cached_property
    def update(self) -> Document | None:
        """The revision of the parent's current template, or None if it does not exist yet."""
        data = templates.without_empty(_data(self._parent["spec"]["template"]))
        for revision in reversed(self.revisions):
            if templates.without_empty(revision["data"]) == data:
                return revision
        return None

    def revise(self) -> Request | None:
        """Returns the request that makes the current template the latest revision; None if it is
        already.
        """
        latest = number_of(self.revisions[-1]) if self.revisions else 0
        if self.update is None:
            return self._create(latest + 1)
        if self.update is not self.revisions[-1]:
            # A rollback gives an old revision the highest number, as `kubectl rollout undo`
            # expects.
            return requests.update("controllerrevisions", self.update | {"revision": latest + 1})
        return None

    def forget_old(self, live: Collection[str]) -> Iterator[Request]:
        """Yields deletions of the oldest revisions beyond the history limit.

        Revisions that `live` names are kept.
        """
        old = [item for item in self.revisions if templates.name_of(item) not in live]
        limit = self._parent["spec"].get("revisionHistoryLimit")
        if limit is None:
            limit = _KEPT

        for revision in old[: max(len(old) - limit, 0)]:
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
    """Returns the hash that identifies the template in its revision's name and label."""
    text = json.dumps(templates.without_empty(_data(template)), sort_keys=True)
    return name_suffix(text, 9)


def template_of(revision: Document) -> Document:
    """Returns the pod template that the revision stores."""
    template = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def number_of(revision: Document) -> int:
    return int(revision.get("revision") or 0)


def hash_of(revision: Document) -> str:
    """Returns the hash with which a DaemonSet labels the pods of this revision."""
    return str((revision["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def label_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def _data(template: Document) -> Document:
    """Returns the revision's data: a patch that restores the template."""
    return {"spec": {"template": template | {"$patch": "replace"}}}
