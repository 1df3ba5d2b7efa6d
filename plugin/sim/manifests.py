"""The manifests of claimd as plain objects: what an administrator applies, so that its rules hold
here too.

A wheel has them beside this file; in a source tree they are the originals.
"""

from __future__ import annotations

from pathlib import Path

from .. import errors
from ..api import text
from ..api.document import Document

_BESIDE = Path(__file__).with_name("manifests")
_ORIGINAL = Path(__file__).resolve().parents[2] / "deploy" / "base"


def base() -> list[Document]:
    """What deploy/base has, in its order, with the namespace and the labels that kustomize would
    give it.
    """
    folder = next((one for one in (_BESIDE, _ORIGINAL) if one.is_dir()), None)
    if folder is None:
        raise errors.Fatal(
            f"the manifests of claimd are neither at {_BESIDE} nor at {_ORIGINAL}: install it anew"
        )
    rules = text.load((folder / "kustomization.yaml").read_bytes())
    namespace = rules["namespace"]
    labels = {
        name: value for entry in rules.get("labels") or () for name, value in entry["pairs"].items()
    }
    found = []
    for file in rules["resources"]:
        for obj in text.load_all((folder / file).read_bytes()):
            metadata = dict(obj["metadata"])
            metadata["labels"] = metadata.get("labels", {}) | labels
            if obj["kind"] in _NAMESPACED:
                metadata["namespace"] = namespace
            found.append(obj | {"metadata": metadata})
    return found


_NAMESPACED = ("ServiceAccount", "DaemonSet")
