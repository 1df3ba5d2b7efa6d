"""The boundaries hold by themselves: what may not be imported is refused wherever somebody puts it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources and the contracts, for a test to spoil; what it adds it takes away again."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("plugin", "devices"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(copy):
    code = (
        "import sys; sys.path[:0] = ['plugin', 'devices']\n"
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False
    )
    return done.returncode, " ".join(done.stdout.split())


def test_the_house_as_it_is(copy):
    code, said = lint(copy)
    assert code == 0, said[-2000:]


# A forbidden import of each kind: of a library, of a module on a higher floor, of a whole wing.
FORBIDDEN = [
    (
        "plugin/claimd/node/report/events.py",
        "import h11",
        "h11 lives in the HTTP server",
    ),
    (
        "plugin/claimd/kubernetes/allocator/amounts.py",
        "from . import search",
        "claimd.kubernetes.allocator: each line",
    ),
    (
        "plugin/claimd/node/app.py",
        "from claimd.sim import cluster",
        "a node never allocates",
    ),
]
MORE_FORBIDDEN = [
    (
        "plugin/claimd/common/durable.py",
        "import grpc",
        "grpc lives in claimd.node.kubelet",
    ),
    (
        "plugin/claimd/kubernetes/allocator/amounts.py",
        "import re2",
        "re2 lives in claimd.kubernetes.cel.regex",
    ),
    (
        "plugin/claimd/kubernetes/cel/tokens.py",
        "from . import parser",
        "claimd.kubernetes.cel: each line",
    ),
    (
        "plugin/claimd/kubernetes/kube/errors.py",
        "from . import client",
        "claimd.kubernetes.kube: each line",
    ),
    (
        "devices/claimd_devices/sysfs.py",
        "import msgspec",
        "hardware has never heard of Kubernetes",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [*FORBIDDEN, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE_FORBIDDEN)],
)
def test_a_forbidden_import_is_refused(copy, module, line, broken):
    place = copy / module
    text = place.read_text()
    place.write_text(f"{text}\n\ndef _later() -> None:\n    {line}  # noqa\n")
    try:
        code, said = lint(copy)
    finally:
        place.write_text(text)
    assert code == 1, "lint-imports took it"
    assert f"{broken}" in said
    assert "BROKEN" in said


def test_a_module_that_stands_on_no_floor_is_refused(copy):
    place = copy / "plugin/claimd/stray.py"
    place.write_text('"""A module that nobody has placed."""\n')
    try:
        code, said = lint(copy)
    finally:
        place.unlink()
    assert code == 1
    assert "stray" in said
