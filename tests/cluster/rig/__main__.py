"""The rig's command line: `python -m tests.cluster.rig --help`. Verbs call the other modules;
nothing is done here.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import build, control_plane, daemons, images, node, packages
from .places import (
    CACHE,
    CDI_CHOICES,
    KUBE,
    OCI_RUNTIMES,
    RUNTIMES,
    STATE,
    Choices,
    NoCluster,
    RigError,
    kube_binary,
    newest_kubelet,
    runtime_folder,
)


def packages_(_: argparse.Namespace) -> None:
    packages.install()


def build_(asked: argparse.Namespace) -> None:
    build.everything(_choices(asked))


def up(asked: argparse.Namespace) -> None:
    choices = dataclasses.replace(
        _choices(asked),
        feature_gates=asked.feature_gates or "",
        runtime_config=asked.runtime_config or Choices.runtime_config,
        control_plane_only=asked.control_plane_only or asked.api_server_only,
        api_server_only=asked.api_server_only,
        etcd_fsync=asked.etcd_fsync,
        cdi=asked.cdi or Choices.cdi,
    )
    if choices.api_server_only:
        build.etcd()
        build.kubernetes(choices.kube, ["kube-apiserver"])
    else:
        build.everything(choices)
    control_plane.up(choices)
    if not choices.control_plane_only:
        node.start_runtime(choices)
        images.load_own()
        node.start_kubelet(choices)
        node.wait_until_ready()
    print(f"up: Kubernetes {choices.kube}, KUBECONFIG={STATE}/admin.kubeconfig")


def _choices(asked: argparse.Namespace) -> Choices:
    """What binaries depend on."""
    kube, runtime = asked.kube or KUBE, asked.runtime or Choices.runtime
    return Choices(
        kube=kube,
        kubelet=getattr(asked, "kubelet", None) or newest_kubelet(kube, runtime),
        control_plane_only=asked.control_plane_only,
        runtime=runtime,
        oci=getattr(asked, "oci", None) or RUNTIMES[runtime].oci,
    )


def down(_: argparse.Namespace) -> None:
    try:
        node.down(Choices.saved())
    except NoCluster:
        node.down(Choices())
    control_plane.down()
    shutil.rmtree(STATE, ignore_errors=True)


def node_(asked: argparse.Namespace) -> None:
    if asked.what == "stop":
        daemons.stop("kubelet")
    else:
        saved = Choices.saved()
        gates = saved.feature_gates if asked.feature_gates is None else asked.feature_gates
        node.start_kubelet(
            dataclasses.replace(saved, kubelet=asked.kube or saved.kubelet, feature_gates=gates)
        )


def apiserver(asked: argparse.Namespace) -> None:
    saved = Choices.saved()
    control_plane.restart_apiserver(
        dataclasses.replace(
            saved,
            kube=asked.kube or saved.kube,
            runtime_config=asked.runtime_config or saved.runtime_config,
            feature_gates=saved.feature_gates
            if asked.feature_gates is None
            else asked.feature_gates,
        )
    )


def runtime(asked: argparse.Namespace) -> None:
    saved = Choices.saved()
    node.restart_runtime(dataclasses.replace(saved, cdi=asked.cdi or saved.cdi))


def reboot(_: argparse.Namespace) -> None:
    node.reboot(Choices.saved())


def load_image(asked: argparse.Namespace) -> None:
    images.load_folder(asked.folder, asked.name)


def load_archive(asked: argparse.Namespace) -> None:
    images.load_archive(asked.file)


def build_image(asked: argparse.Namespace) -> None:
    images.build(asked.folder, asked.file or asked.folder / "Containerfile", asked.tag)


def helm(_: argparse.Namespace) -> None:
    print(build.helm())


def env(_: argparse.Namespace) -> None:
    saved = Choices.saved()
    folders = f"{kube_binary('', saved.kube)}:{runtime_folder(saved.runtime)}"
    print(f"export KUBECONFIG={STATE}/admin.kubeconfig PATH={folders}:$PATH")


def status(_: argparse.Namespace) -> None:
    for name in control_plane.DAEMONS + node.DAEMONS:
        print(f"{name:20} {daemons.pid_of(name) or 'stopped'}")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.rig",
        description="A real one-node Kubernetes on this machine. Needs root and Go; `packages` installs the rest.",
        epilog=f"State lies in $RIG_STATE (now {STATE}), logs in its logs/; binaries in $RIG_CACHE (now {CACHE}).",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, function: object, text: str, *options: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(function=function)
        known: dict[str, dict[str, object]] = {
            "--kube": {"metavar": "VERSION", "help": f"of Kubernetes (default {KUBE})"},
            "--kubelet": {"metavar": "VERSION", "help": "if it is to be an older one"},
            "--control-plane-only": {
                "action": "store_true",
                "help": "no container runtime and no kubelet",
            },
            "--api-server-only": {"action": "store_true", "help": "etcd and the API server alone"},
            "--feature-gates": {"metavar": "A=true,B=false"},
            "--runtime-config": {
                "help": "which API versions are served, as kube-apiserver takes it"
            },
            "--etcd-fsync": {
                "action": "store_true",
                "help": "etcd as safe, and as slow, as in production",
            },
            "--runtime": {
                "choices": list(RUNTIMES),
                "help": "containers are run by this (default containerd)",
            },
            "--oci": {
                "choices": OCI_RUNTIMES,
                "help": "the runtime starts them with this (default runc, CRI-O's crun)",
            },
            "--cdi": {
                "choices": CDI_CHOICES,
                "help": "whether the runtime reads CDI specs, and ours among them (default on)",
            },
        }
        for option in options:
            added.add_argument(option, **known[option])  # type: ignore[arg-type]
        return added

    verb("packages", packages_, "install the Debian packages that are missing")
    verb(
        "build",
        build_,
        "build the binaries (12 minutes on 2 cores, then cached)",
        "--kube",
        "--control-plane-only",
        "--runtime",
    )
    sizes = ("--control-plane-only", "--api-server-only")
    all_options = (
        "--kube",
        "--kubelet",
        *sizes,
        "--feature-gates",
        "--runtime-config",
        "--etcd-fsync",
        "--runtime",
        "--oci",
        "--cdi",
    )
    verb("up", up, "build what is missing and start the cluster", *all_options)
    verb("down", down, "stop everything that the rig started, unmount, delete the state")
    stopping = verb(
        "node",
        node_,
        "stop the kubelet alone, or start one, of another version too",
        "--kube",
        "--feature-gates",
    )
    stopping.add_argument("what", choices=["stop", "start"])
    server = verb(
        "apiserver",
        apiserver,
        "replace the API server",
        "--kube",
        "--feature-gates",
        "--runtime-config",
    )
    server.add_argument("what", choices=["restart"])
    replacing = verb(
        "runtime", runtime, "replace the container runtime; its containers live on", "--cdi"
    )
    replacing.add_argument("what", choices=["restart"])
    verb(
        "reboot",
        reboot,
        "what a reboot does to the node: pods die, /var/run/cdi is empty, everything starts again",
    )
    loading = verb(
        "load-image", load_image, "make an image out of a root file system and import it"
    )
    loading.add_argument("folder", type=Path)
    loading.add_argument("name", metavar="NAME[:TAG]")
    verb("load-archive", load_archive, "import an OCI or Docker archive").add_argument(
        "file", type=Path
    )
    making = verb(
        "build-image", build_image, "build a Containerfile with podman and import the image"
    )
    making.add_argument("folder", type=Path)
    making.add_argument("file", type=Path, nargs="?")
    making.add_argument("--tag", default="localhost/claimd:dev")
    verb("helm", helm, "build Helm, three minutes the first time, and say where it is")
    verb("env", env, "print KUBECONFIG and PATH for `eval`")
    verb("status", status, "say what runs")
    return parser


def main() -> int:
    asked = arguments().parse_args()
    if os.geteuid() != 0 and asked.function not in (env, status):
        print(
            "rig: needs root: it mounts, makes namespaces and listens on port 443", file=sys.stderr
        )
        return 1
    try:
        asked.function(asked)
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        told = "".join(
            text if isinstance(text, str) else text.decode()
            for text in (error.stdout, error.stderr)
            if text
        )
        print(
            f"rig: {' '.join(error.cmd)} ended with {error.returncode}\n{told}".rstrip(),
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
