"""What the schema of the chart's values says of claimd's settings, from the settings themselves.

The rest of the schema is written by hand, in the file.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from claimd.node import config

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "deploy/chart/values.schema.json"

# The templates set these, by other values: where things are in the pod, and who it is.
OF_TEMPLATES = frozenset(
    {
        "cdi_dir",
        "dev_root",
        "driver_name",
        "endpoint",
        "host_root",
        "kubeconfig",
        "kubelet_dir",
        "library_hook_dir",
        "metrics_authorization",
        "metrics_endpoint",
        "metrics_tls",
        "node_name",
        "nvml",
        "pod_uid",
        "proc_root",
        "root",
        "service_account",
        "sys_root",
    }
)


def schema(text: str) -> str:
    """The schema with the settings as they are now."""
    document = json.loads(text)
    document["properties"]["settings"]["properties"] = {
        config.key_of(setting.name): _described(setting)
        for setting in dataclasses.fields(config.Config)
        if setting.name not in OF_TEMPLATES
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _described(setting: dataclasses.Field[Any]) -> dict[str, Any]:
    about = {"description": setting.metadata["about"]}
    choices = config.CHOICES.get(setting.name, ())
    if choices:
        # YAML takes these two words for something else than a string
        spelt = [word == "true" for word in choices if word in ("true", "false")]
        return about | {"enum": [*choices, *spelt]}

    if isinstance(setting.default, bool):
        return about | {"type": "boolean"}
    if isinstance(setting.default, float):
        return about | {"type": "number"} | _bounds(setting.name)
    if isinstance(setting.default, tuple):
        return about | {"type": ["string", "array"], "items": {"type": "string"}}
    return about | {"type": "string"}


def _bounds(name: str) -> dict[str, float]:
    if name not in config.SECONDS:
        return {"minimum": 0}
    least, most = config.SECONDS[name]
    return {"minimum": least, "maximum": most}
