"""Mounts in a mount namespace of their own, which ends with its last process."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


def prefix(mounts: Mapping[Path, Path]) -> list[str]:
    """Returns the words before a command line that gives it folders of the host, as a container.

    `mounts` has the folder of the host by the folder where it is mounted.
    """
    steps: list[str] = []
    for folder, host in mounts.items():
        steps.append(f"mount --bind {shlex.quote(str(host))} {shlex.quote(str(folder))}")
    return ["unshare", "-m", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"]


def _why_not() -> str:
    try:
        run = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return "unshare is missing"
    return "" if run.returncode == 0 else "this process may not make a mount namespace"


needs_mounts = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")
