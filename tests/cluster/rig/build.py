"""Builds etcd, the container runtimes and Kubernetes from their Go modules into the cache.

A binary that is in the cache already is not built again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from . import packages
from .places import (
    CACHE,
    CRUN,
    CRUN_DEBIAN,
    ETCD,
    HELM,
    INTEL_PLUGINS,
    RUNTIMES,
    STATE,
    Choices,
    RigError,
    etcd_binary,
    helm_binary,
    kube_binary,
    oci_binary,
    run,
    runtime_folder,
)

API_SERVER = ("kube-apiserver", "kubectl")
CONTROL_PLANE = (*API_SERVER, "kube-controller-manager", "kube-scheduler")
NODE_TOOLS = ("kubelet",)
CONTAINERD_TOOLS = ("containerd", "containerd-shim-runc-v2", "ctr")
CRIO_TOOLS = ("crio", "pinns")
# These build tags let CRI-O do without the libraries of GPGME, OSTree and btrfs. The tags `seccomp`,
# `apparmor` and `selinux` are left out, because each of them needs a library too.
CRIO_TAGS = "containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs btrfs_noversion"


def everything(choices: Choices) -> None:
    """Builds all binaries that a cluster with these choices runs."""
    etcd()
    kubernetes(choices.kube, API_SERVER if choices.api_server_only else CONTROL_PLANE)
    if choices.control_plane_only:
        return

    kubernetes(choices.kubelet, NODE_TOOLS)
    if choices.runtime == "crio":
        crio()
    else:
        containerd(choices.runtime)
    if choices.oci == "crun":
        crun()


def is_complete(choices: Choices) -> bool:
    """Returns True if a cluster with these choices, and with containerd, needs no build."""
    folder = runtime_folder(choices.runtime)
    paths = [
        etcd_binary(),
        *(kube_binary(tool, choices.kube) for tool in CONTROL_PLANE),
        *(kube_binary(tool, choices.kubelet) for tool in NODE_TOOLS),
        *(folder / tool for tool in CONTAINERD_TOOLS),
    ]
    return all(path.exists() for path in paths)


def etcd() -> None:
    """Builds etcd."""
    _build_module("etcd", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}, etcd_binary().parent)


def containerd(runtime: str) -> None:
    """Builds containerd, its shim and its client in the version that RUNTIMES names."""
    version, folder = RUNTIMES[runtime].version, runtime_folder(runtime)
    major = "v2/" if version.startswith("2.") else ""
    commands = f"github.com/containerd/containerd/{major}cmd/"
    tags = "no_btrfs no_devmapper no_zfs no_aufs"
    _build_module("containerd", version, {t: commands + t for t in CONTAINERD_TOOLS}, folder, tags)


def crio() -> None:
    """Builds CRI-O and its tool pinns in CRI-O's own module, with the versions that its go.mod names.

    Both contain C code, so a C compiler is needed. No C library but libc is needed: see CRIO_TAGS.
    """
    folder = runtime_folder("crio")
    if all((folder / tool).exists() for tool in CRIO_TOOLS):
        return

    source = _download(f"github.com/cri-o/cri-o@v{RUNTIMES['crio'].version}")
    _compile(source, "./cmd/crio", folder / "crio", "-tags", CRIO_TAGS, "-ldflags", "-s -w", cgo=1)

    files = sorted((source / "pinns" / "src").glob("*.c"))
    run("gcc", "-std=c99", "-Os", "-static", "-o", folder / "pinns", *files)


def crun() -> None:
    """Takes crun from a later Debian and puts the libraries that it needs next to it."""
    target = oci_binary("crun")
    if target.exists():
        return

    print(f"taking crun from Debian {CRUN_DEBIAN} …", flush=True)
    with tempfile.TemporaryDirectory(dir=_make_folder(CACHE)) as folder:
        root = Path(folder) / "root"
        options = ("--quiet", "--variant=extract", "--include=crun", "--format=directory")
        run("mmdebstrap", *options, CRUN_DEBIAN, root)

        libraries = _make_folder(target.parent / "lib")
        for pattern in ("usr/lib/*/ld-linux-*.so.*", "usr/lib/*/lib*.so.*"):
            for file in root.glob(pattern):
                shutil.copy(file, libraries)

        # crun runs copies of itself. So the loader is written into the binary: a wrapper script
        # that calls the loader would not apply to the copies.
        (loader,) = libraries.glob("ld-linux-*")
        unfinished = target.with_name(".crun")
        shutil.copy(root / "usr/bin/crun", unfinished)
        paths = ("--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries)
        run("patchelf", *paths, unfinished)

    told = run(unfinished, "--version", capture_output=True, text=True).stdout
    if f"crun version {CRUN}\n" not in told:
        raise RigError(
            f"expected crun {CRUN} from Debian {CRUN_DEBIAN}, but it says {told.splitlines()[0]!r};"
            " change CRUN in tests/cluster/rig/places.py"
        )
    unfinished.rename(target)


def oci_script(oci: str) -> Path:
    """Writes and returns a script that starts one of OCI_RUNTIMES through oci.py.

    Container runtimes are configured with this script, because an OCI runtime alone may not work on
    a machine that is itself a container.
    """
    script = STATE / f"oci-{oci}"
    start = f"exec {sys.executable} -I -S {Path(__file__).with_name('oci.py')} {oci_binary(oci)}"
    script.write_text(f'#!/bin/sh\n{start} "$@"\n')
    script.chmod(0o755)
    return script


def intel_gpu_plugin() -> Path:
    """Builds Intel's device plugin for GPUs and returns its path.

    The plugin is not part of a cluster. It runs without hardware.
    """
    folder = CACHE / "bin" / f"intel-device-plugins-{INTEL_PLUGINS}"
    package = "github.com/intel/intel-device-plugins-for-kubernetes/cmd/gpu_plugin"
    _build_module("intel-device-plugins", INTEL_PLUGINS, {"gpu_plugin": package}, folder)
    return folder / "gpu_plugin"


def helm() -> Path:
    """Builds Helm and returns its path. Helm is not part of a cluster."""
    _build_module("helm", HELM, {"helm": "helm.sh/helm/v4/cmd/helm"}, helm_binary().parent)
    return helm_binary()


def kubernetes(version: str, tools: Iterable[str]) -> None:
    """Builds the tools of this version of Kubernetes that are not in the cache."""
    folder = kube_binary("", version)
    absent = [tool for tool in tools if not (folder / tool).exists()]
    if not absent:
        return
    work = _kubernetes_module(version)
    minor = version.split(".")[1]
    stamp = {
        "gitVersion": f"v{version}",
        "gitMajor": "1",
        "gitMinor": minor,
        "gitCommit": "rig",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    stamped = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(
        [
            "-s -w",
            *(f"-X {package}.{key}={value}" for package in stamped for key, value in stamp.items()),
        ]
    )
    for tool in absent:
        _compile(work, f"k8s.io/kubernetes/cmd/{tool}", folder / tool, "-ldflags", flags)


def _kubernetes_module(version: str) -> Path:
    """Makes a Go module that requires k8s.io/kubernetes and its staging modules, and returns its
    folder.

    The go.mod of k8s.io/kubernetes requires the staging modules as v0.0.0 and replaces them by
    folders that only its repository has. The module made here replaces them by the published
    versions that belong to this version of Kubernetes.
    """
    work = CACHE / "src" / f"kube-{version}"
    work.mkdir(parents=True, exist_ok=True)
    source = _download(f"k8s.io/kubernetes@v{version}")
    lines = (source / "go.mod").read_text().splitlines()
    staging = [line.split()[0] for line in lines if line.strip().endswith(" v0.0.0")]
    text = ["module rig", next(line for line in lines if line.startswith("go "))]
    text += [line for line in lines if line.startswith("godebug ")]
    text += [f"require k8s.io/kubernetes v{version}"]
    text += [f"replace {name} => {name} v0.{version.split('.', 1)[1]}" for name in staging]
    (work / "go.mod").write_text("\n".join(text) + "\n")
    _tidy(work, [f"k8s.io/kubernetes/cmd/{tool}" for tool in CONTROL_PLANE + NODE_TOOLS])
    return work


def _download(module: str) -> Path:
    """Downloads the sources of `path@version` and returns the folder in which Go keeps them."""
    told = _go("mod", "download", "-json", module, cwd=CACHE, capture_output=True, text=True)
    return Path(json.loads(told.stdout)["Dir"])


def _build_module(
    name: str, version: str, wanted: dict[str, str], folder: Path, tags: str = ""
) -> None:
    """Builds those commands of one module that are not in the folder (`wanted`: tool → package)."""
    absent = {tool: package for tool, package in wanted.items() if not (folder / tool).exists()}
    if not absent:
        return
    work = CACHE / "src" / f"{name}-{version}"
    work.mkdir(parents=True, exist_ok=True)
    module = "/".join(next(iter(wanted.values())).split("/cmd/")[0].split("/")[:4])
    (work / "go.mod").write_text(f"module rig\n\ngo 1.26.0\n\nrequire {module} v{version}\n")
    _tidy(work, wanted.values())
    for tool, package in absent.items():
        _compile(work, package, folder / tool, "-tags", tags, "-ldflags", "-s -w")


def _tidy(work: Path, imports: Iterable[str]) -> None:
    lines = "\n".join(f'\t_ "{package}"' for package in imports)
    (work / "tools.go").write_text(f"//go:build tools\n\npackage rig\n\nimport (\n{lines}\n)\n")
    # `go mod tidy` complains that commands cannot be imported. With -e it goes on all the same.
    _go("mod", "tidy", "-e", cwd=work, stderr=subprocess.DEVNULL)


def _compile(work: Path, package: str, target: Path, *flags: str, cgo: int = 0) -> None:
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}")
    print(f"building {target.parent.name}/{target.name} …", flush=True)
    _go("build", "-trimpath", *flags, "-o", unfinished, package, cwd=work, cgo=cgo)
    unfinished.rename(target)
    print(
        f"built {target.parent.name}/{target.name} in {time.monotonic() - began:.0f} s", flush=True
    )


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _go(*words: object, cgo: int = 0, **options: object) -> subprocess.CompletedProcess[str]:
    packages.check_go()
    CACHE.mkdir(parents=True, exist_ok=True)
    return run(
        "go",
        *words,
        env={**os.environ, "CGO_ENABLED": str(cgo), "GOFLAGS": "-buildvcs=false"},
        **options,
    )
