"""The PYTHONPATH with which another Python process imports the same claimd as this one."""

from __future__ import annotations

import os
from importlib import util
from pathlib import Path

_PACKAGES = ("claimd", "claimd_devices")


def python_path(more: str = "") -> str:
    """Returns the folders that hold our packages, followed by `more`, joined as PYTHONPATH wants them.

    A wheel has both packages in one folder. A checkout has each in a folder of its own.
    """
    folders = []
    for package in _PACKAGES:
        spec = util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        folders.append(str(Path(spec.origin).parents[1]))
    return os.pathsep.join(dict.fromkeys(filter(None, [*folders, more])))
