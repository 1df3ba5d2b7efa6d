"""Which test files answer for a module: those of its name, or of its folder, and those that `mirrors.toml` adds."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def modules() -> list[str]:
    """Lists every module that ships and holds code of ours, as a path from the root."""
    paths = [
        path.relative_to(ROOT)
        for package in ("plugin", "devices")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return [
        str(path)
        for path in paths
        if path.name not in ("__init__.py", "__main__.py")
        and not path.is_relative_to("plugin/claimd/kubernetes/kubelet_api")
    ]


def import_name(module: str) -> str:
    """Returns claimd.node.app for plugin/claimd/node/app.py."""
    _source_root, *rest = Path(module).with_suffix("").parts
    return ".".join(rest)


def _folder(module: str) -> Path:
    """Returns tests/plugin/common for a module in plugin/claimd/common."""
    source_root, _package, *rest = Path(module).parent.parts
    return ROOT.joinpath("tests", source_root, *rest)


def of_its_name(module: str) -> list[str]:
    """`tests/plugin/kubernetes/kube/test_watch.py` for `plugin/claimd/kubernetes/kube/watch.py`, and `test_watch_….py` beside it."""
    place = _folder(module)
    stem = Path(module).stem
    files = [*place.glob(f"test_{stem}.py"), *place.glob(f"test_{stem}_*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in files)


@functools.cache
def exceptions() -> dict[str, list[str]]:
    """Patterns of modules whose behaviour is tested through another door, and the files that do."""
    document = tomllib.loads((ROOT / "tests/mirrors.toml").read_text())
    return {str(pattern): list(files) for pattern, files in document["mirrors"].items()}


def of_its_folder(module: str) -> list[str]:
    """Every test file of the folder that mirrors the module's package."""
    place = _folder(module)
    return sorted(str(path.relative_to(ROOT)) for path in place.glob("test_*.py"))


@functools.cache
def tests_of(module: str) -> list[str]:
    """The test files that have to notice when the module is wrong.

    Those of its name; where there is none, all of its folder; and what `mirrors.toml` adds. Files
    that appear during a run do not count.
    """
    files = of_its_name(module) or of_its_folder(module)
    for pattern, named in exceptions().items():
        if fnmatch.fnmatch(module, pattern):
            files += [name for name in named if name not in files]
    return files
