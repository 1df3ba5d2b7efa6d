"""Builds etcd, containerd and Kubernetes from their Go modules into the cache. What is there is not
built again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from . import packages
from .places import (
    CACHE,
    CONTAINERD,
    ETCD,
    HELM,
    INTEL_PLUGINS,
    containerd_folder,
    etcd_binary,
    helm_binary,
    kube_binary,
    run,
)

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE_TOOLS = ("kubelet",)
CONTAINERD_TOOLS = ("containerd", "containerd-shim-runc-v2", "ctr")


def everything(version: str, *, control_plane_only: bool = False) -> None:
    etcd()
    kubernetes(version, CONTROL_PLANE if control_plane_only else CONTROL_PLANE + NODE_TOOLS)
    if not control_plane_only:
        containerd()


def etcd() -> None:
    _module("etcd", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}, etcd_binary().parent)


def containerd() -> None:
    major = "v2/" if CONTAINERD.startswith("2.") else ""
    commands = f"github.com/containerd/containerd/{major}cmd/"
    tags = "no_btrfs no_devmapper no_zfs no_aufs"
    _module(
        "containerd",
        CONTAINERD,
        {t: commands + t for t in CONTAINERD_TOOLS},
        containerd_folder(),
        tags,
    )


def intel_gpu_plugin() -> Path:
    """Intel's device plugin for GPUs, which does without hardware; no part of a cluster."""
    folder = CACHE / "bin" / f"intel-device-plugins-{INTEL_PLUGINS}"
    package = "github.com/intel/intel-device-plugins-for-kubernetes/cmd/gpu_plugin"
    _module("intel-device-plugins", INTEL_PLUGINS, {"gpu_plugin": package}, folder)
    return folder / "gpu_plugin"


def helm() -> Path:
    """Helm, for the chart; no part of a cluster."""
    _module("helm", HELM, {"helm": "helm.sh/helm/v4/cmd/helm"}, helm_binary().parent)
    return helm_binary()


def kubernetes(version: str, tools: Iterable[str]) -> None:
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
    """A module that requires k8s.io/kubernetes with its staging modules at the versions that belong
    to it: by itself it names them as v0.0.0 and replaces them by folders that only its repository
    has.
    """
    work = CACHE / "src" / f"kube-{version}"
    work.mkdir(parents=True, exist_ok=True)
    module = f"k8s.io/kubernetes@v{version}"
    told = _go("mod", "download", "-json", module, cwd=CACHE, capture_output=True, text=True)
    lines = Path(json.loads(told.stdout)["Dir"], "go.mod").read_text().splitlines()
    staging = [line.split()[0] for line in lines if line.strip().endswith(" v0.0.0")]
    text = ["module rig", next(line for line in lines if line.startswith("go "))]
    text += [line for line in lines if line.startswith("godebug ")]
    text += [f"require k8s.io/kubernetes v{version}"]
    text += [f"replace {name} => {name} v0.{version.split('.', 1)[1]}" for name in staging]
    (work / "go.mod").write_text("\n".join(text) + "\n")
    _tidy(work, [f"k8s.io/kubernetes/cmd/{tool}" for tool in CONTROL_PLANE + NODE_TOOLS])
    return work


def _module(name: str, version: str, wanted: dict[str, str], folder: Path, tags: str = "") -> None:
    """Builds commands (tool → Go package) of one module."""
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
    # -e: commands are no importable packages, which tidy says loudly and does its work all the same
    _go("mod", "tidy", "-e", cwd=work, stderr=subprocess.DEVNULL)


def _compile(work: Path, package: str, target: Path, *flags: str) -> None:
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}")
    print(f"building {target.parent.name}/{target.name} …", flush=True)
    _go("build", "-trimpath", *flags, "-o", unfinished, package, cwd=work)
    unfinished.rename(target)
    print(
        f"built {target.parent.name}/{target.name} in {time.monotonic() - began:.0f} s", flush=True
    )


def _go(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    packages.check_go()
    CACHE.mkdir(parents=True, exist_ok=True)
    return run(
        "go",
        *words,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
        **options,
    )
