"""The wheel: what it holds, and that it works next to a project with folders of the same names as ours."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the files that the Containerfile copies: so the image can be built, too."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "src"
    containerfile = (ROOT / "deploy" / "Containerfile").read_text()
    for words in re.findall(r"^COPY (?!--)(.*)", containerfile, re.M):
        for name in words.split()[:-1]:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)

    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_two_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "deploy" / "base").iterdir():
        assert f"claimd/sim/manifests/{path.name}" in names
    assert "claimd/sim/demo/stories/tour.yaml" in names

    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 3
    assert {top for top in tops if not top.endswith(".dist-info")} == {"claimd", "claimd_devices"}


def test_it_may_be_uploaded(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        assert "Do Not Upload" not in archive.read(metadata).decode()


# A project whose own packages have the names of our source folders.
OWN_PACKAGES = {
    "plugin/__init__.py": "NAME = 'the plugin of the project'\n",
    "plugin/__main__.py": "print('the main of the project')\n",
    "devices/__init__.py": "COUNT = 7\n",
    "proto/__init__.py": "",
    "tests/__init__.py": "",
    "tests/test_project.py": """
        import claimd
        import claimd_devices
        import devices
        import plugin


        def test_a_pod_gets_a_gpu(claimd_cluster):
            assert plugin.NAME == "the plugin of the project"
            assert devices.COUNT == 7
            assert "site-packages" in claimd.__file__
            assert "site-packages" in claimd_devices.__file__
            assert not hasattr(devices, "scan")

            claimd_cluster.apply(MANIFEST)
            pod = claimd_cluster.wait("pod/p", "Running")
            assert pod["spec"]["nodeName"] == "node-1"


        MANIFEST = '''
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: c}
        spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.claimd.dev}}]}}
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - name: main
            image: none
            command: [sleep, "1000"]
            resources: {claims: [{name: gpu}]}
          resourceClaims: [{name: gpu, resourceClaimName: c}]
        '''
        """,
}


@pytest.mark.slow
def test_it_works_next_to_a_project_with_folders_of_our_names(wheel, tmp_path):
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    # The libraries are those of this environment, as nothing is downloaded. Its editable claimd is
    # not seen there, because Python does not follow .pth files in a folder that one of them names.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", str(wheel))

    project = tmp_path / "project"
    for name, content in OWN_PACKAGES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content))

    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST"))
    }
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist"]
    told = run(str(python), "-m", "pytest", *options, cwd=project, env=variables)
    assert "1 passed" in told

    # Its own packages come first for its own programs, and the commands of claimd come from the wheel.
    assert (
        run(str(python), "-m", "plugin", cwd=project, env=variables) == "the main of the project\n"
    )
    command = str(environment / "bin" / "claimd")
    assert run(command, "--version", cwd=project, env=variables).startswith("claimd ")
    assert "usage: claimd" in run(str(python), "-m", "claimd", "--help", cwd=project, env=variables)
