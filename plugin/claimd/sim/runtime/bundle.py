"""The bundle of a container: its configuration, and a folder with its log and for launch.py."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from . import cdi_cache, cdi_spec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """The configuration of a container, as a kubelet passes it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    hostname: str = ""
    cdi_devices: tuple[str, ...] = ()  # qualified names
    mounts: tuple[cdi_spec.Mount, ...] = ()  # mounted before those of CDI


class Bundle:
    """Everything that decides how one attempt of a container starts. It owns the folder."""

    def __init__(
        self,
        config: ContainerConfig,
        edits: cdi_cache.InjectedEdits,
        folder: Path,
        *,
        namespace: bool,
    ) -> None:
        """Creates the bundle without writing it. `namespace` gives the container its own mounts."""
        self.config = config
        self.edits = edits
        self.folder = folder
        self.namespace = namespace
        self.env = {
            "PATH": _PATH,
            "HOME": "/root",
            "HOSTNAME": config.hostname,
            **config.env,
            **dict(edits.env),
        }

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def launch_file(self) -> Path:
        """The configuration for launch.py."""
        return self.folder / "config.json"

    def write(self) -> None:
        """Writes the folder, all but the log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("dev", "cover"):
            (self.folder / name).mkdir(exist_ok=True)
        if not self.namespace:
            self._write_rootfs()
        self.launch_file.write_bytes(msgspec.json.encode(self._launch_config()))

    @property
    def _mounts(self) -> tuple[cdi_spec.Mount, ...]:
        return (*self.config.mounts, *self.edits.mounts)

    def _launch_config(self) -> dict[str, Any]:
        nodes = []
        for node in self.edits.nodes:
            mode = 0o666 if node.file_mode is None else stat.S_IMODE(node.file_mode)
            nodes.append(
                {
                    "path": node.path,
                    "type": node.type,
                    "major": node.major,
                    "minor": node.minor,
                    "mode": mode,
                }
            )

        mounts = []
        for mount in self._mounts:
            mounts.append(
                {
                    "source": mount.host_path,
                    "target": mount.container_path,
                    "options": mount.options,
                }
            )

        return {
            "argv": list(self.config.command),
            "env": self.env,
            "cwd": self.config.working_dir or str(self.folder),
            "hostname": self.config.hostname or self.config.name,
            "namespace": self.namespace,
            "gids": list(self.edits.gids),
            "staging": str(self.folder / "dev"),
            "cover": str(self.folder / "cover"),
            "nodes": nodes,
            "mounts": mounts,
        }

    def _write_rootfs(self) -> None:
        """Writes the injected devices and mounts as plain files below `rootfs`.

        Without its own mount namespace the container cannot see them, but users can look at these
        files.
        """
        root = self.folder / "rootfs"
        for node in self.edits.nodes:
            path = root / node.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            permissions = node.permissions or "rwm"
            path.write_text(f"{node.type} {node.major}:{node.minor} {permissions}\n")

        for mount in self._mounts:
            path = root / mount.container_path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.symlink_to(mount.host_path)
