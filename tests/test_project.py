"""The project's own promises: sizes, generated stubs, locks, the README's words, what the wheel
holds, the layers.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import mirrors

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("plugin", "devices", "tests", "proto")
FILE_LIMIT, FUNCTION_LIMIT = 700, 120


def sources():
    return [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "plugin/claimd/kubernetes/kubelet_api" not in str(path)
    ]


def shipped():
    return [path for path in sources() if path.relative_to(ROOT).parts[0] in ("plugin", "devices")]


def test_sizes():
    """A file of 700 lines, a function of 120: more needs a comment `# size:` that says why."""
    assert [excess for path in sources() for excess in excesses(path)] == []


def excesses(path):
    """Returns a sentence for each thing in a file that is too long."""
    place, text = path.relative_to(ROOT), path.read_text()
    lines = text.splitlines()
    if len(lines) > FILE_LIMIT and "# size:" not in text:
        yield f"{place}: {len(lines)} lines"
    if len(lines) <= FUNCTION_LIMIT:
        return
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            excused = any("# size:" in line for line in lines[node.lineno - 1 : node.lineno + 2])
            if length > FUNCTION_LIMIT and not excused:
                yield f"{place}: {node.name} has {length} lines"


def statements(tree):
    """Yields all statements of a tree. Expressions, which are ten times as many, are left out."""
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            open_nodes.extend(
                child for child in getattr(node, block, ()) if not isinstance(child, ast.expr)
            )


def test_every_module_says_what_it_is_for():
    documented = re.compile(r'"""[^\s"]')
    assert [path for path in shipped() if not documented.match(path.read_text())] == []


def test_architecture_is_short():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200


def test_stubs_are_those_of_the_protos(tmp_path):
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    assert spec and spec.loader
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generate.generate(tmp_path)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    stubs = ROOT / "plugin/claimd/kubernetes/kubelet_api"
    committed = {
        p.relative_to(ROOT / "plugin"): p.read_bytes()
        for p in stubs.rglob("*")
        if p.suffix in (".py", ".pyi")
    }
    assert written == committed, "run `make proto`"


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_locks_have_hashes_and_no_host(name):
    text = (ROOT / name).read_text()
    pinned = re.findall(r"^[A-Za-z0-9][\w.-]*==", text, re.M)
    assert pinned
    assert text.count("--hash=sha256:") >= len(pinned)
    assert not re.search(r"https?://|--index-url|--find-links|/root|/home", text)


def test_what_ships_is_what_is_tested():
    def pins(name):
        return dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", (ROOT / name).read_text(), re.M))

    assert pins("requirements.txt").items() <= pins("requirements-dev.txt").items()


def test_readme_shows_the_help_as_it_is():
    out = subprocess.run(
        [sys.executable, "-m", "claimd", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout
    assert out.strip() in (ROOT / "README.md").read_text(), (
        "paste the output of `claimd --help` into README.md"
    )


def test_places_and_tests_named_in_docs_are_there():
    """The table of docs/objects.md leads somewhere."""
    text = (ROOT / "docs" / "objects.md").read_text()
    tests = re.findall(r"`(tests/\S+\.py)::([\w:]+)`", text)
    assert len(tests) > 10
    for path, names in tests:
        for name in names.split("::"):
            defined = rf"^ *((async )?def {name}\(|class {name}:)"
            assert re.search(defined, (ROOT / path).read_text(), re.M), f"{path} has no {name}"
    for path in re.findall(r"`(plugin/\S+\.py)`", text):
        assert (ROOT / path).is_file(), path


def test_make_verbs_are_documented():
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    for verb in phony.split():
        assert re.search(rf"^{verb}:.*##", makefile, re.M), f"{verb} has no ## words"


def test_proto_names_are_the_ones_that_kubelets_dial():
    from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
    from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
    from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2 as health
    from claimd.kubernetes.kubelet_api.dra_health.v1alpha1 import api_pb2 as old_health
    from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
    from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2 as podresources

    services = {
        service.full_name: sorted(service.methods_by_name)
        for module in (v1, v1beta1, health, old_health, registration, podresources)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert services == {
        "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": [
            "NodePrepareResources",
            "NodeUnprepareResources",
        ],
        "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin": [
            "NodePrepareResources",
            "NodeUnprepareResources",
        ],
        "v1.DRAResourceHealth": ["NodeWatchResources"],
        "v1.PodResourcesLister": ["List"],
        "v1alpha1.DRAResourceHealth": ["NodeWatchResources"],
        "pluginregistration.Registration": ["GetInfo", "NotifyRegistrationStatus"],
    }
    numbers = {field.name: field.number for field in v1.Device.DESCRIPTOR.fields}
    assert numbers == {
        "request_names": 1,
        "pool_name": 2,
        "device_name": 3,
        "cdi_device_ids": 4,
        "share_id": 5,
    }
    assert "share_id" not in v1beta1.Device.DESCRIPTOR.fields_by_name


def test_every_module_has_tests_that_answer_for_it():
    files = {module: mirrors.tests_of(module) for module in mirrors.modules()}
    untested = [module for module, named in files.items() if not named]
    assert untested == [], (
        "write a test file of its name or in its folder, or name one in mirrors.toml"
    )


def test_mirrors_name_test_files_that_are_there():
    named = {path for files in mirrors.exceptions().values() for path in files}
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_no_merge_was_left_unfinished():
    tracked = subprocess.run(
        ["git", "grep", "-lE", "^(<{7}|>{7}) ", "--", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tracked.stdout == ""


def test_every_file_of_tests_is_run():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    files = {f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")}
    assert files - set(run) == set()
