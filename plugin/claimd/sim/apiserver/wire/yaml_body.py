"""YAML as Kubernetes reads it: plain values only, dates stay text.

Loaded when somebody sends or wants some, since its library is slow to load.
"""

from __future__ import annotations

from typing import Any

import yaml

from claimd.kubernetes.api import text

from ..types import status_errors

_LOADER = text.yaml_loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def load(body: bytes) -> Any:
    try:
        return yaml.load(body, Loader=_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise status_errors.bad_request(f"error decoding the body: {error}") from error


class _Dumper(yaml.SafeDumper):
    """Knows every sort of map for one."""


_Dumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)


def dump(value: Any) -> bytes:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True).encode()
