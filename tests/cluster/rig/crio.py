"""CRI-O: starts the daemon, imports images and kills pods.

conmon and the OCI runtime come from Debian.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

from . import build, daemons, mounts, processes
from .places import CDI_FOLDER, PAUSE, STATE, Choices, RigError, run, runtime_folder

DAEMON = "crio"
ROOT = STATE / "crio"
# On a usual node this folder is on a tmpfs.
RUN = ROOT / "run"
# The path must not end with run/crio/crio.sock: with such a path the kubelet takes statistics from
# cAdvisor, which looks for CRI-O's socket in /var/run/crio only.
SOCKET = ROOT / "crio.sock"

STORE = ("--root", ROOT / "root", "--runroot", RUN / "storage", "--storage-driver", "overlay")


def start(choices: Choices) -> None:
    """Starts CRI-O and waits until it answers."""
    build.crio()

    ROOT.mkdir(parents=True, exist_ok=True)
    (STATE / "crio.conf").write_text(_configuration(choices))

    binary = runtime_folder("crio") / "crio"
    daemons.start(
        DAEMON,
        binary,
        f"--config={STATE}/crio.conf",
        "--config-dir=",
        env={**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"},
    )
    daemons.wait_for(DAEMON, _answers, needs=DAEMON)


def load(choices: Choices, archive: Path, *, unpack: bool = True) -> None:
    """Imports an archive with podman, which can write into CRI-O's image store."""
    del choices, unpack
    run("podman", *STORE, "load", "--quiet", "--input", archive, capture_output=True)


def kill_pods(choices: Choices) -> None:
    """Kills the containers and their monitors."""
    del choices
    for monitor in processes.of("conmon", ROOT):
        for container in processes.children(monitor):
            processes.send(container, signal.SIGKILL)
        processes.send(monitor, signal.SIGKILL)


def forget() -> None:
    """Deletes what a reboot deletes. The version file is part of it: if it is missing, CRI-O knows
    that there was a reboot and that all containers are gone.
    """
    mounts.unmount(ROOT)
    shutil.rmtree(RUN, ignore_errors=True)


def _answers() -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(str(SOCKET))
    return True


def _configuration(choices: Choices) -> str:
    if choices.cdi == "off":
        raise RigError("CDI cannot be turned off in CRI-O; use `--cdi elsewhere`")
    folders = '"/etc/cdi"'
    if choices.cdi == "on":
        folders += f', "{CDI_FOLDER}"'

    return f"""[crio]
  root = "{ROOT}/root"
  runroot = "{RUN}/storage"
  storage_driver = "overlay"
  log_dir = "{ROOT}/logs"
  version_file = "{RUN}/version"
  clean_shutdown_file = ""
[crio.api]
  listen = "{SOCKET}"
[crio.runtime]
  default_runtime = "{choices.oci}"
  cgroup_manager = "cgroupfs"
  cdi_spec_dirs = [{folders}]
  container_exits_dir = "{RUN}/exits"
  container_attach_socket_dir = "{RUN}/attach"
  namespaces_dir = "{RUN}/namespaces"
  pinns_path = "{runtime_folder("crio")}/pinns"
  apparmor_profile = "unconfined"
  irqbalance_config_restore_file = "disable"
  enable_criu_support = false
  hooks_dir = []
[crio.runtime.runtimes.{choices.oci}]
  runtime_path = "{build.oci_script(choices.oci)}"
  runtime_root = "{RUN}/{choices.oci}"
  monitor_path = "{shutil.which("conmon")}"
  monitor_cgroup = "pod"
[crio.image]
  pause_image = "{PAUSE}"
  pause_command = "/pause"
[crio.network]
  network_dir = "{STATE}/cni"
  plugin_dirs = ["/usr/lib/cni"]
[crio.nri]
  enable_nri = false
"""
