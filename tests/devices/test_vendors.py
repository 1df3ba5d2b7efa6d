"""The table of vendors, and the page about adding one: its steps are done in a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from claimd_devices import fake, vendors
from tests.devices.trees import Make

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/new-vendor.md"
LISTING = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def listings(language: str) -> list[str]:
    return [text for name, text in LISTING.findall(PAGE.read_text()) if name == language]


def replace(path: Path, pattern: str, text: str) -> None:
    """Replaces the only text that matches the pattern by a listing of the page."""
    content, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.M | re.S)
    assert count == 1, f"{pattern} stands {count} times in {path}"
    path.write_text(content)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the sources and adds the vendor of the page."""
    folder = tmp_path_factory.mktemp("sources")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "devices", folder / "devices", ignore=ignore)
    (folder / "tests/devices").mkdir(parents=True)
    for name in ("tests/devices/conftest.py", "tests/devices/trees.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)

    reads, imports, row, writes, fake_import, fake_row, tests = listings("python")
    (folder / "devices/claimd_devices/acme.py").write_text(reads)
    table = folder / "devices/claimd_devices/vendors.py"
    replace(table, r"^from \. import amd, .*?\n", imports)
    replace(table, r"^VENDORS: .*?\n", row)

    (folder / "devices/claimd_devices/fake/acme.py").write_text(writes)
    table = folder / "devices/claimd_devices/fake/vendors.py"
    replace(table, r"^from \.amd import FakeAmd\n", f"{fake_import}from .amd import FakeAmd\n")
    replace(table, r"^VENDORS: .*?\)\n", fake_row)

    (folder / "tests/devices/test_acme.py").write_text(tests)
    layer, fake_layer = listings("toml")
    layers = folder / "pyproject.toml"
    replace(layers, r'^    "amd \| faults \| .*?\n', layer)
    replace(layers, r'^    "amd \| intel \| nvidia \| screens",\n', fake_layer)
    return folder


def run(folder: Path, *command: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": f"{folder}/plugin:{folder}/devices:{folder}",
        "PYTHONSAFEPATH": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_tests_of_the_page_pass_in_a_copy(copy: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "3 passed" in run(copy, *command, "tests/devices/test_acme.py")


def test_the_vendor_of_the_page_is_known_everywhere(copy: Path) -> None:
    program = """
import sys
from pathlib import Path
from claimd_devices import fake, faults, monitor, scan, vendors
from claimd_devices.gpu import Roots, Rules

tree = Path(sys.argv[1])
fake.write(tree, fake.parse(["acme:anvil=2", "nvidia:l4", "bmc:aspeed"]))
roots = Roots.in_folder(tree)
gpus = scan.scan(roots).gpus
print([gpu.vendor for gpu in gpus])
print([gpu.vendor for gpu in scan.scan(roots, Rules(exclude=("acme",))).gpus])
print([vendor.DEVICE_PLUGIN_RESOURCES for vendor in vendors.VENDORS][-1])
faults.inject(tree, "hot", gpus[0].name)
report = monitor.check_once(roots, scan.scan(roots))
print([(name, finding.kind) for name, findings in report.findings for finding in findings])
"""
    name = "gpu-0000-11-00-0"
    assert run(copy, sys.executable, "-c", program, str(copy / "tree")).splitlines() == [
        "['acme', 'acme', 'nvidia']",
        "['nvidia']",
        "('acme.example/gpu',)",
        str([(name, "hot")]),
    ]


def test_the_device_class_of_the_page_is_like_the_others() -> None:
    (text,) = listings("yaml")
    path = ROOT / "deploy/base/deviceclasses.yaml"
    classes = {
        document["metadata"]["name"]: document for document in yaml.safe_load_all(path.read_text())
    }
    assert yaml.safe_load(text.replace("acme", "intel")) == classes["intel.gpu.claimd.dev"]
    for vendor in vendors.VENDORS:
        assert f"{vendor.NAME}.gpu.claimd.dev" in classes


def test_every_vendor_has_a_row_of_its_own() -> None:
    ids = [vendor.VENDOR_ID for vendor in vendors.VENDORS]
    assert ids == [0x10DE, 0x1002, 0x8086]
    assert [vendor.NAME for vendor in vendors.VENDORS] == ["nvidia", "amd", "intel"]
    drivers = [driver for vendor in vendors.VENDORS for driver in vendor.DRIVERS]
    assert len(set(drivers)) == len(drivers)
    for vendor in vendors.VENDORS:
        assert vendor.DEVICE_PLUGIN_RESOURCES
        assert all("." in name for name in vendor.DEVICE_PLUGIN_RESOURCES)
    assert not set(ids) & set(vendors.SCREENS)


def test_every_vendor_has_fakes_that_are_found_as_its_own() -> None:
    for vendor in vendors.VENDORS:
        prefix = f"{vendor.NAME}:"
        models = [model for name, model in fake.MODELS.items() if name.startswith(prefix)]
        assert models
        for model in models:
            assert int(model.ids[:4], 16) == vendor.VENDOR_ID
            assert model.driver in vendor.DRIVERS


@pytest.mark.parametrize(
    ("model", "loaded"),
    [
        ("intel:b580", []),
        ("amd:radeon", ["claimd_devices.amdgpu", "claimd_devices.kfd"]),
        ("nvidia:h100", ["claimd_devices.mig", "claimd_devices.nvidia_files"]),
    ],
)
def test_what_one_vendor_needs_is_loaded_where_it_has_a_gpu(
    make_tree: Make, model: str, loaded: list[str]
) -> None:
    """Otherwise every start would load it, which is a tenth of loading the hardware package."""
    code = """
import sys
from pathlib import Path
from claimd_devices import monitor, scan, watch
from claimd_devices.gpu import Roots
dear = {"claimd_devices.amdgpu", "claimd_devices.kfd", "claimd_devices.mig", "claimd_devices.nvidia_files"}
print(sorted(dear & set(sys.modules)))
scan.scan(Roots.in_folder(Path(sys.argv[1])))
print(sorted(dear & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(make_tree(model).folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]", str(loaded)]
