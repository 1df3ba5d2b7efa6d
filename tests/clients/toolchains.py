"""What programs of others need, to be built and run: tools of this machine, and what is installed
once into the user's cache.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "claimd-clients"
RIG = Path.home() / ".cache/rig/bin"
INSTALLING, RUNNING = 1200, 180  # seconds


@contextlib.contextmanager
def simulated(folder, *options):
    """The kubeconfig of a server that is there alone."""
    config = folder / "kc"
    command = [sys.executable, "-m", "claimd", "sim", "--kubeconfig", str(config), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as server:
        try:
            assert server.stdout.readline().startswith(b"serving like Kubernetes")
            yield config
        finally:
            server.terminate()


def run(words, folder, **environment):
    """What it prints; it must end well."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALLING,
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


def need(tool):
    path = shutil.which(tool)
    if not path:
        pytest.skip(f"{tool} is not installed")
    return path


def newest(tool):
    """As the rig built it, or of the PATH."""
    built = sorted(RIG.glob(f"*/{tool}"))
    return str(built[-1]) if built else need(tool)


def installed(name, pins, install):
    """A folder in the cache, filled by `install(folder)` once for what `pins` say."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:16]
    return _filled(CACHE / f"{name}-{digest}", install)


def sources_of_go(module, version):
    """All that a released Go module has, where nobody may change it."""
    told = run([need("go"), "mod", "download", "-json", f"{module}@{version}"], ROOT)
    return Path(json.loads(told)["Dir"])


def built_by_go(module, version, package="."):
    """A program of a released Go module, of what its release says that it is built of."""

    def install(folder):
        # With all cores it would take the machine from whatever else is tested on it.
        words = [need("go"), "build", "-p", "1", "-o", str(folder / "program"), package]
        run(words, sources_of_go(module, version))

    name = f"{module}/{package}".removesuffix("/.").rpartition("/")[2]
    return _filled(CACHE / f"{name}-{version}", install) / "program"


def _filled(folder, install):
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(folder)
        (folder / "complete").touch()
    return folder
