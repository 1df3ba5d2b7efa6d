"""The CI jobs of docs/ci.md run another project's suite from a wheel, without our sources."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from claimd.sim.testing import pytest_plugin

ROOT = Path(__file__).resolve().parents[4]
STRANGER = ROOT / "tests" / "cases" / "stranger"
WHEEL = "CLAIMD_WHEEL"


def jobs():
    """Returns the jobs of GitHub and GitLab from the page."""
    text = (ROOT / "docs" / "ci.md").read_text()
    return [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)
    ]


def shell_steps():
    github, gitlab = jobs()
    steps = [step["run"] for step in github["jobs"]["cluster"]["steps"] if "run" in step]
    job = gitlab["cluster"]
    return {"github": steps, "gitlab": [*job["before_script"], *job["script"]]}


def test_the_jobs_are_jobs():
    github, gitlab = jobs()
    # YAML 1.1 takes `on` for a truth value; GitHub does not.
    assert set(github) == {"name", True, "jobs"}
    job = github["jobs"]["cluster"]
    assert WHEEL in job["env"]
    assert all(set(step) <= {"run", "uses", "with"} for step in job["steps"])
    assert WHEEL in gitlab["cluster"]["variables"]
    assert shell_steps()["github"] == shell_steps()["gitlab"]


def test_what_the_page_says_of_a_cluster_is_there():
    text = (ROOT / "docs" / "ci.md").read_text()
    table = text.partition("| | |")[2].partition("## GitHub")[0]
    for name in re.findall(r"(?<![\w\]).])`([a-z]+)\(", table):
        assert hasattr(pytest_plugin.Cluster, name), name
    for name in re.findall(r'nodes\["[\w-]+"\]\.(\w+)', text):
        assert hasattr(pytest_plugin.Node, name), name
    for name in re.findall(r"\b(?:claimd_)?cluster\.(\w+)", text):
        known = {"nodes", "folder", "address"}  # of each instance
        assert hasattr(pytest_plugin.Cluster, name) or name in known, name
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        compile(block, "docs/ci.md", "exec")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Returns the variables of an offline environment with our dependencies, and with claimd only
    as a wheel to install."""
    folder = tmp_path_factory.mktemp("stranger")
    venv.create(folder / "venv", with_pip=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return {
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        WHEEL: str(wheel),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider",
    }


@pytest.mark.slow
def test_their_steps_run_a_drivers_suite(environment, tmp_path):
    """Each step runs as on its CI runner, in a folder that contains only the driver."""
    place = tmp_path / "repository"
    shutil.copytree(STRANGER, place)
    for step in shell_steps()["github"]:
        if "e2e.sh" in step and not shutil.which("kubectl"):
            continue
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"

    where = "import claimd; print(claimd.__file__)"
    loaded = subprocess.run(
        ["python", "-P", "-c", where], env=environment, capture_output=True, text=True, check=True
    )
    assert "/venv/lib/" in loaded.stdout
