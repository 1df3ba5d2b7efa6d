"""Writes kubeconfigs with one context."""

import json
from pathlib import Path
from typing import Any

from claimd.kubernetes.api import text


def write(
    path: Path, cluster: dict[str, Any], user: dict[str, Any], *, as_yaml: bool = False
) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "preferences": {},
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(text.dump_yaml(document) if as_yaml else json.dumps(document))
    return path
