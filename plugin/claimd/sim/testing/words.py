"""Parses nodes from a command line or a test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from claimd.common import errors
from claimd_devices import fake

from .. import cluster

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,29}[a-z0-9])?")
_KEYS = ("gpus", "settings", "claimd")


def machine(words: str) -> cluster.Machine:
    """Parses `one=nvidia:h100=2 amd:mi300x`, or `one` for a node without claimd.

    Raises UsageError for any other text.
    """
    name, _, gpus = words.partition("=")
    return machine_of(name, gpus)


def machine_of(name: str, given: Any) -> cluster.Machine:
    """Returns a node with GPUs, given as text or a list, or as a mapping with more settings.

    A node without GPUs or settings has only a kubelet, which waits for a driver. Raises
    UsageError for invalid input.
    """
    if not _NAME.fullmatch(name):
        raise errors.UsageError(
            f"node {name!r}: expected up to 31 lower-case letters, digits and hyphens, since "
            "sockets lie in a folder of that name"
        )
    if not isinstance(given, Mapping):
        given = {"gpus": given}
    unknown = sorted(set(given) - set(_KEYS))
    if unknown:
        raise errors.UsageError(
            f"node {name!r}: {', '.join(unknown)} is not one of {', '.join(_KEYS)}"
        )

    gpus = _gpus(name, given.get("gpus") or ())
    settings = {key: str(value) for key, value in (given.get("settings") or {}).items()}
    return cluster.Machine(
        name=name,
        gpus=gpus,
        settings=settings,
        claimd=bool(given.get("claimd", gpus or settings)),
    )


def _gpus(name: str, given: str | Sequence[str]) -> Sequence[str]:
    gpus = tuple(given.split() if isinstance(given, str) else given)
    try:
        fake.parse(gpus)
    except ValueError as error:
        raise errors.UsageError(f"node {name!r}: {error}") from error
    return gpus
