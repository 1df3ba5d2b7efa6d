"""A story that `claimd demo` tells to its end, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from claimd.common import import_path


def tell(tmp_path: Path, nodes: list[dict[str, Any]], *steps: dict[str, Any]) -> None:
    """On these nodes; AssertionError with what was told if a step's fact does not come."""
    story = {
        "title": "A story",
        "nodes": nodes,
        "settings": {"require-libraries": False},
        "chapters": [{"title": "All of it", "steps": list(steps)}],
    }
    path = tmp_path / "story.yaml"
    path.write_text(yaml.safe_dump(story))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CLAIMD_")}
    done = subprocess.run(
        [sys.executable, "-m", "claimd", "demo", str(path), "--plain", "--speed", "0"],
        env=environment | {"PYTHONPATH": import_path.python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
