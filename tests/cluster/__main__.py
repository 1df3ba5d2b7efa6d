"""Runs the cluster suite: `python -m tests.cluster` starts a one-node cluster, deploys claimd there,
runs the tests and stops the cluster. If KUBECONFIG is set, the tests run on that cluster instead.
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
from tests.cluster.rig.places import IMAGE, KUBE, OCI_RUNTIMES, OLDER_KUBELET, RUNTIMES, Choices

ROOT = Path(__file__).resolve().parents[2]
OVERLAY = "tests/cluster/overlay"
# The folder of the fake GPUs on the node; deploy/overlays/fake names it.
FAKE_TREE = Path("/var/lib/claimd-fake")
# These files start control planes of their own, one after the other, while no cluster is up.
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
        help=f"test also with kubelet {OLDER_KUBELET}, other API servers and other container "
        "runtimes",
    )
    parser.add_argument(
        "--runtime", choices=RUNTIMES, default="containerd", help="the container runtime"
    )
    parser.add_argument(
        "--oci",
        choices=OCI_RUNTIMES,
        help="the OCI runtime that it uses (default runc for containerd, crun for CRI-O)",
    )
    parser.add_argument("--keep", action="store_true", help="do not stop the cluster at the end")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest after `--`: files, -k, -x …")
    asked = parser.parse_args()
    if os.environ.get("KUBECONFIG"):
        say(
            f"testing claimd on the cluster of {os.environ['KUBECONFIG']}; tests that need the rig are skipped"
        )
        return suite(*asked.pytest)

    say("packages")
    packages.install()

    chosen = runtime(asked.runtime, asked.oci)
    failed = 0
    with cluster(chosen, keep=asked.keep and not asked.matrix):
        failed |= suite(*asked.pytest)
        if asked.matrix and chosen.kubelet != OLDER_KUBELET:
            say(f"the same under kubelet {OLDER_KUBELET}")
            change_kubelet()
            failed |= suite(*asked.pytest)
    if not asked.matrix:
        return failed

    say("other API servers")
    failed |= suite(*OTHER_SERVERS)
    for other in every_runtime():
        if other != chosen:
            with cluster(other, keep=False):
                failed |= suite(*asked.pytest)
    return failed


def runtime(name: str, oci: str | None = None) -> Choices:
    return Choices(
        runtime=name,
        oci=oci or RUNTIMES[name].oci,
        kubelet=places.newest_kubelet(KUBE, name),
    )


def every_runtime() -> list[Choices]:
    """Returns each container runtime with its default OCI runtime, and containerd with crun."""
    return [*(runtime(name) for name in RUNTIMES), runtime("containerd", "crun")]


@contextlib.contextmanager
def cluster(choices: Choices, *, keep: bool) -> Iterator[None]:
    """Starts a cluster with claimd, and stops it at the end unless `keep` is true."""
    say("binaries (12 minutes the first time, and 5 for CRI-O)")
    build.everything(choices)

    version = RUNTIMES[choices.runtime].version
    say(f"cluster up: {choices.runtime} {version}, {choices.oci}, kubelet {choices.kubelet}")
    shutil.rmtree(FAKE_TREE, ignore_errors=True)
    # An interrupted run may have left a cluster.
    rig("down")
    rig("up", "--runtime", choices.runtime, "--oci", choices.oci, "--kubelet", choices.kubelet)

    path = f"{places.kube_binary('', choices.kube)}:{os.environ['PATH']}"
    os.environ.update(KUBECONFIG=f"{places.STATE}/admin.kubeconfig", PATH=path)
    try:
        say("image")
        rig("build-image", ".", "deploy/Containerfile", "--tag", IMAGE)

        say("deploy")
        deploy()
        yield
    finally:
        if not keep:
            say("cluster down")
            del os.environ["KUBECONFIG"]
            rig("down")
            shutil.rmtree(FAKE_TREE, ignore_errors=True)


def deploy() -> None:
    """Deploys claimd with fake GPUs. If its pod does not become ready, prints its description and
    logs.
    """
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


def change_kubelet() -> None:
    """Replaces the kubelet by an older one, and waits until claimd has published its slices again.

    Each kubelet deletes the node's slices when it starts.
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
    options = ("--timeout=900", "--durations=12")
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
