"""The cluster suite from nothing: `python -m tests.cluster` makes a one-node cluster, deploys
claimd there, tests it and takes all down again. With KUBECONFIG set it tests that cluster instead.
What is tested stands in test_*.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.rig import build, packages, places

ROOT = Path(__file__).resolve().parents[2]
OVERLAY = "tests/cluster/overlay"
IMAGE = "localhost/claimd:dev"
FAKE_TREE = Path("/var/lib/claimd-fake")  # as deploy/overlays/fake has it
OLDER_KUBELET = "1.34.4"
# They start control planes of their own, one after the other, once the cluster is down.
OTHER_SERVERS = (
    "tests/cluster/test_11_api_versions.py",
    "tests/cluster/test_15_rights.py",
    "tests/cluster/test_18_gpu_config.py",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument(
        "--matrix",
        action="store_true",
        help=f"also with kubelet {OLDER_KUBELET} and other API servers",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    parser.add_argument("pytest", nargs="*", help="for pytest, after `--`: files, -k, -x, …")
    asked = parser.parse_args()
    if os.environ.get("KUBECONFIG"):
        say(
            f"testing claimd on the cluster of {os.environ['KUBECONFIG']}; tests that need the rig are skipped"
        )
        return suite(*asked.pytest)
    say("packages")
    packages.install()
    say("binaries (12 minutes the first time)")
    build.everything(places.KUBE)
    failed = 0
    with cluster(keep=asked.keep and not asked.matrix):
        failed |= suite(*asked.pytest)
        if asked.matrix:
            say(f"the same under kubelet {OLDER_KUBELET}")
            change_kubelet()
            failed |= suite(*asked.pytest)
    if asked.matrix:
        say("other API servers")
        failed |= suite(*OTHER_SERVERS)
    return failed


@contextlib.contextmanager
def cluster(*, keep: bool) -> Iterator[None]:
    say("cluster up")
    shutil.rmtree(FAKE_TREE, ignore_errors=True)
    rig("up")
    path = f"{places.kube_binary('', places.KUBE)}:{os.environ['PATH']}"
    os.environ.update(KUBECONFIG=f"{places.STATE}/admin.kubeconfig", PATH=path)
    try:
        say("image")
        rig("build-image", ".", "deploy/Containerfile", "--tag", IMAGE)
        say("deploy")
        command("kubectl", "apply", "--server-side", "--kustomize", OVERLAY)
        there = "--namespace=claimd-system"
        try:
            command("kubectl", there, "rollout", "status", "daemonset/claimd", "--timeout=240s")
        except subprocess.CalledProcessError:
            command("kubectl", there, "describe", "pods")
            command(
                "kubectl",
                there,
                "logs",
                "--selector=app.kubernetes.io/name=claimd",
                "--all-containers",
                check=False,
            )
            raise
        yield
    finally:
        if not keep:
            say("cluster down")
            del os.environ["KUBECONFIG"]
            rig("down")
            shutil.rmtree(FAKE_TREE, ignore_errors=True)


def change_kubelet() -> None:
    """Returns when the new kubelet has deleted our slices, as each does when it starts, and they
    are back.
    """
    get = ("kubectl", "get", "resourceslices", "--output=jsonpath={.items[*].metadata.uid}")

    def slices() -> set[str]:
        return set(subprocess.run(get, check=True, capture_output=True, text=True).stdout.split())

    before = slices()
    rig("node", "stop")
    rig("node", "start", "--kube", OLDER_KUBELET)
    wait_for("slices after the kubelet's start", lambda: (now := slices()) and not now & before)


def suite(*words: str) -> int:
    chosen = words or ("tests/cluster", *(f"--ignore={path}" for path in OTHER_SERVERS))
    options = ("-p", "no:cacheprovider", "--timeout=900", "--durations=12")
    return command(sys.executable, "-m", "pytest", "-v", *options, *chosen, check=False).returncode


def rig(*words: str) -> None:
    command(sys.executable, "-m", "tests.cluster.rig", *words)


def command(*words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, cwd=ROOT, check=check)


def say(what: str) -> None:
    print(f"=== {time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (places.RigError, subprocess.CalledProcessError) as error:
        sys.exit(f"tests.cluster: {error}")
