"""containerd 1.7 and 2: starts the daemon, imports images and kills pods."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from . import build, daemons, processes
from .places import CDI_FOLDER, PAUSE, STATE, Choices, run, runtime_folder

DAEMON = "containerd"
ROOT = STATE / "containerd"
SOCKET = ROOT / "containerd.sock"

COMMON = f"""root = "{ROOT}/root"
state = "{ROOT}/state"
[grpc]
  address = "{SOCKET}"
"""
RUNTIME = """  enable_cdi = {cdi}
  cdi_spec_dirs = {folders}
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = true
"""
OCI = """  [plugins."{plugin}".containerd]
    default_runtime_name = "{oci}"
  [plugins."{plugin}".containerd.runtimes.{oci}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{plugin}".containerd.runtimes.{oci}.options]
      BinaryName = "{binary}"
      SystemdCgroup = false
"""


def start(choices: Choices) -> None:
    """Starts containerd and waits until it answers."""
    build.containerd(choices.runtime)

    (STATE / "containerd.toml").write_text(_configuration(choices))

    # containerd looks for its shim on PATH.
    binaries = runtime_folder(choices.runtime)
    path = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    daemons.start(DAEMON, binaries / "containerd", "--config", STATE / "containerd.toml", env=path)
    daemons.wait_for(DAEMON, lambda: _ctr(choices, "version", capture_output=True), needs=DAEMON)


def load(choices: Choices, archive: Path, *, unpack: bool = True) -> None:
    """Imports an OCI archive. containerd unpacks its layers only if `unpack` is true."""
    options = () if unpack else ("--no-unpack",)
    _ctr(choices, "images", "import", *options, archive, capture_output=True)


def kill_pods(choices: Choices) -> None:
    """Kills all containers and sandboxes. Does nothing if containerd does not run."""
    if not SOCKET.exists() or not daemons.pid_of(DAEMON):
        return

    quiet = {"check": False, "capture_output": True}
    listed = _ctr(choices, "tasks", "ls", "-q", check=False, capture_output=True, text=True)
    names = listed.stdout.split()
    for name in names:
        _ctr(choices, "tasks", "kill", "-s", "SIGKILL", "-a", name, **quiet)
    for name in names:
        _ctr(choices, "tasks", "rm", "-f", name, **quiet)
        _ctr(choices, "containers", "rm", name, **quiet)

    # The shim of a sandbox still runs after its tasks have ended.
    for shim in processes.of("containerd-shim-runc-v2", SOCKET):
        processes.send(shim, signal.SIGKILL)


def forget() -> None:
    """Does nothing. containerd cleans up its stale state itself when it starts after a reboot."""


def _ctr(choices: Choices, *words: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs containerd's client `ctr` in the kubelet's namespace of containerd."""
    client = runtime_folder(choices.runtime) / "ctr"
    return run(client, "--address", SOCKET, "-n", "k8s.io", *words, **options)


def _configuration(choices: Choices) -> str:
    folders = ["/etc/cdi"]
    if choices.cdi != "elsewhere":
        folders.append(str(CDI_FOLDER))
    runtime = RUNTIME.format(
        cdi=str(choices.cdi != "off").lower(), folders=str(folders).replace("'", '"')
    )

    binary: str | Path = choices.oci
    if choices.oci == "crun":
        binary = build.oci_script(choices.oci)

    if choices.runtime == "containerd-1.7":
        plugin = "io.containerd.grpc.v1.cri"
        return (
            "version = 2\n"
            + COMMON
            + f'[plugins."{plugin}"]\n  sandbox_image = "{PAUSE}"\n'
            + runtime
            + f'  [plugins."{plugin}".cni]\n'
            + f'    bin_dir = "/usr/lib/cni"\n    conf_dir = "{STATE}/cni"\n'
            + OCI.format(plugin=plugin, oci=choices.oci, binary=binary)
        )

    plugin, images = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"
    return (
        "version = 3\n"
        + COMMON
        + f'[plugins."{images}"]\n  snapshotter = "overlayfs"\n'
        + f'  [plugins."{images}".pinned_images]\n    sandbox = "{PAUSE}"\n'
        + f'[plugins."{plugin}"]\n'
        + runtime
        + f'  [plugins."{plugin}".cni]\n'
        + f'    bin_dirs = ["/usr/lib/cni"]\n    conf_dir = "{STATE}/cni"\n'
        + OCI.format(plugin=plugin, oci=choices.oci, binary=binary)
    )
