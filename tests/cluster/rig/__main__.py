"""The rig's command line: see `python -m tests.cluster.rig --help`.

This module reads arguments and calls the other modules, which do the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import build, control_plane, daemons, images, node, packages
from .places import (
    CACHE,
    CDI_CHOICES,
    IMAGE,
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

# The options, by their names. `arguments` says which verb has which options.
OPTIONS: dict[str, dict[str, Any]] = {
    "--kube": {
        "metavar": "VERSION",
        "help": f"the version of Kubernetes ({KUBE} for a new cluster)",
    },
    "--kubelet": {
        "metavar": "VERSION",
        "help": "the kubelet's version (default: --kube, or an older one if the container "
        "runtime needs it)",
    },
    "--control-plane-only": {
        "action": "store_true",
        "help": "start neither a container runtime nor a kubelet",
    },
    "--api-server-only": {
        "action": "store_true",
        "help": "start etcd and the API server only",
    },
    "--feature-gates": {
        "metavar": "A=true,B=false",
        "help": "the feature gates of all Kubernetes components",
    },
    "--runtime-config": {
        "help": "the API versions to serve, in the syntax of kube-apiserver",
    },
    "--etcd-fsync": {
        "action": "store_true",
        "help": "let etcd sync its writes, which is as safe and as slow as in production",
    },
    "--runtime": {
        "choices": list(RUNTIMES),
        "help": "the container runtime (default containerd)",
    },
    "--oci": {
        "choices": OCI_RUNTIMES,
        "help": "the OCI runtime that it uses (default runc for containerd, crun for CRI-O)",
    },
    "--cdi": {
        "choices": CDI_CHOICES,
        "help": "whether the container runtime reads the CDI specs in /var/run/cdi; "
        "`elsewhere`: it reads those in /etc/cdi only (default on)",
    },
}


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
    """Returns the choices on which the binaries depend. The other choices have their defaults."""
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
        description="Runs a real one-node Kubernetes on this machine. Needs root and Go; "
        "`packages` installs the other programs that it needs.",
        epilog=f"State and logs are in $RIG_STATE (now {STATE}), binaries in $RIG_CACHE "
        f"(now {CACHE}).",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, function: object, text: str, *options: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(function=function)
        for option in options:
            added.add_argument(option, **OPTIONS[option])
        return added

    verb("packages", packages_, "install the Debian packages that are missing")
    verb(
        "build",
        build_,
        "build the binaries that are not in the cache (all: 12 minutes on 2 cores)",
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
    verb("up", up, "build the missing binaries and start the cluster", *all_options)
    verb("down", down, "stop everything that the rig started, unmount, delete the state")
    stopping = verb(
        "node",
        node_,
        "stop the kubelet, or start one that may have another version",
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
        "do what a reboot does: kill the pods, empty /var/run/cdi, start everything again",
    )
    loading = verb(
        "load-image", load_image, "make an image from the folder of a root file system, import it"
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
    making.add_argument("--tag", default=IMAGE)
    verb("helm", helm, "build Helm (three minutes, then cached) and print its path")
    verb("env", env, "print KUBECONFIG and PATH for `eval`")
    verb("status", status, "print the process id of each daemon")
    return parser


def main() -> int:
    asked = arguments().parse_args()
    if os.geteuid() != 0 and asked.function not in (env, status):
        print(
            "rig: run it as root, because it mounts, makes namespaces and listens on port 443",
            file=sys.stderr,
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
            f"rig: `{' '.join(error.cmd)}` failed with exit code {error.returncode}\n"
            f"{told}".rstrip(),
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
