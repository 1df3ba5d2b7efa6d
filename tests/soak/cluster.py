"""The rig with claimd of this tree on it: brought up and deployed if it is not there, taken down if
it was not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.rig import build, daemons, packages, places
from tests.cluster.rig.places import IMAGE

ROOT = Path(__file__).resolve().parents[2]
OVERLAY = "tests/soak/overlay"
QUIETLY: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True}
FAKE_TREE = Path("/var/lib/claimd-fake")  # as deploy/overlays/fake has it


@contextlib.contextmanager
def up(*, keep: bool, same_image: bool) -> Iterator[None]:
    """A rig that is up is used, with the image of this tree, and left up."""
    is_up = daemons.pid_of("apiserver") is not None
    if not is_up:
        packages.install()
        build.everything(places.Choices())
        shutil.rmtree(FAKE_TREE, ignore_errors=True)
        rig("up")
    os.environ.update(KUBECONFIG=f"{places.STATE}/admin.kubeconfig")
    try:
        if not same_image:
            rig("build-image", ".", "deploy/Containerfile", "--tag", IMAGE)
        deploy()
        yield
    finally:
        if not is_up and not keep:
            rig("down")
            shutil.rmtree(FAKE_TREE, ignore_errors=True)


def deploy() -> None:
    """The image has the same name each time, so the pods are made anew."""
    kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", OVERLAY)
    there = "--namespace=claimd-system"
    kubectl(there, "rollout", "restart", "daemonset/claimd")
    kubectl(there, "rollout", "status", "daemonset/claimd", "--timeout=240s")
    end = time.monotonic() + 60
    while True:
        get = ("get", "pods", "--output=name")
        if len(kubectl(there, *get).split()) == 1:
            return
        if time.monotonic() > end:
            raise places.RigError("claimd's old pod does not go")
        time.sleep(0.5)


def image_of(commit: str) -> str:
    """Builds this commit's own image; nothing if the clone has no such commit."""
    known = subprocess.run(
        ["git", "rev-parse", "--verify", "--short", f"{commit}^{{commit}}"], check=False, **QUIETLY
    )
    if known.returncode:
        return ""
    image = f"localhost/claimd:{known.stdout.strip()}"
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        rig("build-image", folder, f"{folder}/deploy/Containerfile", "--tag", image)
    return image


def newest_tag() -> str:
    return str(
        subprocess.run(["git", "describe", "--tags", "--abbrev=0"], check=False, **QUIETLY).stdout
    ).strip()


def kubectl(*words: str) -> str:
    command = [str(places.kube_binary("kubectl", places.KUBE)), *words]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise places.RigError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def rig(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.cluster.rig", *words], cwd=ROOT, check=True, stdout=sys.stderr
    )
