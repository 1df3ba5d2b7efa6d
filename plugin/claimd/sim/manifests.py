"""The manifests of claimd as plain objects: what an administrator applies, so that its rules hold
here too.

A wheel has them beside this file; in a source tree they are the originals.
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
    """What deploy/base has, in its order, as kustomize would give it.

    That is with the namespace and the labels of its kustomization. Fatal if it is not there.
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
        "install it anew"
    )
