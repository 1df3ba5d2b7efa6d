"""The manifests of claimd as plain objects, in the form in which an administrator applies them.

A wheel contains a copy next to this file; a source tree has the originals in deploy/base.
"""

from __future__ import annotations

from pathlib import Path

from claimd.common import errors
from claimd.kubernetes.api import text
from claimd.kubernetes.api.document import Document

_IN_WHEEL = Path(__file__).with_name("manifests")
_IN_SOURCE_TREE = Path(__file__).resolve().parents[3] / "deploy" / "base"
_NAMESPACED = ("ServiceAccount", "DaemonSet")


def base() -> list[Document]:
    """Returns the objects of deploy/base in their order, as kustomize builds them.

    They have the namespace and labels of the kustomization. Raises Fatal if the manifests do not
    exist.
    """
    folder = _folder()
    kustomization = text.load((folder / "kustomization.yaml").read_bytes())
    labels: dict[str, str] = {}
    for entry in kustomization.get("labels") or ():
        labels |= entry["pairs"]

    objects = []
    for file in kustomization["resources"]:
        for obj in text.load_all((folder / file).read_bytes()):
            metadata = dict(obj["metadata"])
            metadata["labels"] = metadata.get("labels", {}) | labels
            if obj["kind"] in _NAMESPACED:
                metadata["namespace"] = kustomization["namespace"]
            objects.append(obj | {"metadata": metadata})
    return objects


def _folder() -> Path:
    for folder in (_IN_WHEEL, _IN_SOURCE_TREE):
        if folder.is_dir():
            return folder
    raise errors.Fatal(
        f"the manifests of claimd are neither at {_IN_WHEEL} nor at {_IN_SOURCE_TREE}: "
        "install it again"
    )
