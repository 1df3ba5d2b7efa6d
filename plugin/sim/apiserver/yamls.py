"""YAML as Kubernetes reads it: plain values only, dates stay text, no key twice. Loaded when somebody sends some."""

from __future__ import annotations

from typing import Any

import yaml

from . import refused


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    pass


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(body: bytes) -> Any:
    try:
        return yaml.load(body, Loader=_Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise refused.bad_request(f"error decoding the body: {error}") from error


def dump(value: Any) -> bytes:
    return yaml.safe_dump(value, sort_keys=True, allow_unicode=True).encode()
