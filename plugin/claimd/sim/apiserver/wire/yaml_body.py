"""YAML as Kubernetes reads it: only plain values, and dates stay text.

This module is loaded with the first body of YAML, because its library is slow to load.
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


def check_values(body: bytes, most: int) -> None:
    """Raises a 413 for more values than `most`.

    The parser's events take a tenth of the time that the values take.
    """
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(body)
    count = 0
    try:
        while parser.check_event():
            count += isinstance(parser.get_event(), yaml.NodeEvent)
            # A map has two events for each of its values.
            if count > 2 * most:
                raise status_errors.too_many(f"{most} values")
    except (yaml.YAMLError, UnicodeDecodeError):
        return  # `load` says where the fault is
    finally:
        parser.dispose()


class _Dumper(yaml.SafeDumper):
    """A dumper that writes every subclass of dict as a map."""


_Dumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)


def dump(value: Any) -> bytes:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True).encode()
