"""What the configuration of a container runtime says of CDI and of cgroups.

The files are those that the running process was started with, put together as the runtime puts them
together: tried with containerd 1.7.35 and 2.2.9 and with CRI-O 1.34.0. What follows from it is
decided in `runtime`.
"""

from __future__ import annotations

import fnmatch
import posixpath
import tomllib
from collections.abc import Iterator
from typing import Any

from claimd_devices import sysfs

from .sight import Flags, Sight, names

# Where distributions put containerd's configuration, if its command line does not say.
CONTAINERD_FILES = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/run/k0s/containerd-cri.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
CRIO_FILE, CRIO_FOLDER = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
FLAG = "its flag --cdi-spec-dirs"

# The table of containerd's CRI plugin, in the configuration's versions 2 and 3.
CRI_PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_NEWEST_VERSION = 3

# The containerd that dockerd starts for itself serves no kubelet.
_DOCKER = ("/run/docker/", "/var/run/docker/")


# ---------------------------------------------------------------- containerd


def containerd(sight: Sight, *, replaces: bool) -> dict[str, Any]:
    """Fields of runtime.Facts; `trouble` where containerd could not read it either.

    `replaces`: as in containerd 1.7, a file that is imported replaces the whole table of a plugin;
    later versions take it setting by setting.
    """
    assert sight.files is not None
    config = _containerd_file(sight)
    if not config:
        there = [path for path in CONTAINERD_FILES if sight.files.real(path) is not None]
        config = there[0] if there else ""
    if not config:
        return {}

    # Of each plugin what is said so far; later files win.
    found: dict[str, Any] = {"config": config}
    of_plugins: dict[str, dict[str, Any]] = {}
    try:
        for path, document in _with_imports(sight, config):
            if path == config and document.get("version") == _NEWEST_VERSION:
                found["table"] = CRI_PLUGINS[1]
            for plugin, cri in _table(document, "plugins").items():
                if plugin not in CRI_PLUGINS:
                    continue
                said = of_plugins.get(plugin, {})
                if said and replaces:
                    said = {"replacing": path, "place": path, "table": plugin}
                of_plugins[plugin] = said | _of_cri(cri, plugin, path)
    except ValueError as error:
        return {"config": config, "trouble": str(error)}

    for plugin in CRI_PLUGINS:
        found |= of_plugins.get(plugin, {})
    return found


def _containerd_file(sight: Sight) -> str:
    """The file that a running containerd was given, as a path of the host."""
    for flags in sight.started("containerd"):
        config = flags.path("config", "c")
        if config and not config.startswith(_DOCKER):
            return config
    return ""


def _with_imports(sight: Sight, config: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A file and all that it imports, each once, in the order in which they count."""
    waiting, loaded = [config], set()
    while waiting:
        path = waiting.pop(0)
        if path in loaded:
            continue
        loaded.add(path)
        document = _toml(sight, path)
        yield path, document

        # What an import imports counts after all that is beside it.
        waiting += _imports(sight, path, document)


def _of_cri(cri: object, plugin: str, path: str) -> dict[str, Any]:
    """What one file says of containerd's CRI plugin."""
    cri = _table(cri)
    found: dict[str, Any] = {}
    if isinstance(cri.get("enable_cdi"), bool):
        found |= {"enable_cdi": cri["enable_cdi"], "place": path, "table": plugin}
    if isinstance(cri.get("cdi_spec_dirs"), list):
        found |= {"folders": tuple(map(str, cri["cdi_spec_dirs"])), "folders_place": path}
    runc = _table(cri, "containerd", "runtimes", "runc", "options")
    if isinstance(runc.get("SystemdCgroup"), bool):
        found["systemd_cgroup"] = runc["SystemdCgroup"]
    return found


def _imports(sight: Sight, path: str, document: dict[str, Any]) -> Iterator[str]:
    """The files that a file imports, in the order in which they count."""
    patterns = document.get("imports", [])
    if not isinstance(patterns, list):
        seen = f"{patterns!r:.60}"
        raise ValueError(f"{path}: imports is no list of files, but {seen}")  # noqa: TRY004
    for pattern in patterns:
        absolute = posixpath.normpath(posixpath.join(posixpath.dirname(path), str(pattern)))
        if "*" in absolute:
            yield from _matching(sight, absolute)
        else:
            # One that is not there keeps containerd from starting.
            yield absolute


def _matching(sight: Sight, pattern: str) -> list[str]:
    """The files that a pattern names, whose folders may be patterns as well; sorted."""
    assert sight.files is not None
    found = [""]
    for part in pattern.strip("/").split("/"):
        longer = []
        for folder in found:
            for name in fnmatch.filter(names(sight.files, folder or "/"), part):
                longer.append(f"{folder}/{name}")
        found = longer
    return found


# ---------------------------------------------------------------- CRI-O


def has_crio(sight: Sight) -> bool:
    """Whether the node looks as if CRI-O were its runtime."""
    assert sight.files is not None
    if sight.files.real(CRIO_FILE) is not None:
        return True
    return next(sight.started("crio"), None) is not None


def crio(sight: Sight) -> dict[str, Any]:
    """Fields of runtime.Facts; `trouble` where CRI-O could not read it either."""
    flags = next(sight.started("crio"), Flags(()))

    # Only the usual file may be missing, and an empty name means that there is none.
    config = flags.path("config", "c")
    files = [config] if config else []
    if config is None:
        assert sight.files is not None
        files = [CRIO_FILE] if sight.files.real(CRIO_FILE) is not None else []
    drop_ins = flags.path("config-dir", "d")
    files += _below(sight, CRIO_FOLDER if drop_ins is None else drop_ins)

    # Later files win, and flags win over files.
    found: dict[str, Any] = {"systemd_cgroup": True, "config": files[0] if files else ""}
    for path in files:
        try:
            of_runtime = _table(_toml(sight, path), "crio", "runtime")
        except ValueError as error:
            return {"config": path, "trouble": str(error)}
        if isinstance(of_runtime.get("cdi_spec_dirs"), list):
            folders = tuple(map(str, of_runtime["cdi_spec_dirs"]))
            found |= {"folders": folders, "folders_place": path}
        if isinstance(of_runtime.get("cgroup_manager"), str):
            found["systemd_cgroup"] = of_runtime["cgroup_manager"] == "systemd"

    lists = flags.values("cdi-spec-dirs")
    if lists:
        found |= {"folders": tuple(",".join(lists).split(",")), "folders_place": FLAG}
    for cgroups in flags.values("cgroup-manager"):
        found["systemd_cgroup"] = cgroups == "systemd"
    return found


def _below(sight: Sight, folder: str) -> list[str]:
    """Every file in a folder and in the folders that it has, as CRI-O takes its drop-ins."""
    assert sight.files is not None
    found = []
    for name in names(sight.files, folder) if folder else ():
        path = posixpath.join(folder, name)
        if sysfs.is_folder(f"{sight.files.host}{sight.files.real(path)}"):
            found += _below(sight, path)
        else:
            found.append(path)
    return found


# ---------------------------------------------------------------- both


def _toml(sight: Sight, path: str) -> dict[str, Any]:
    """Raises a ValueError that names the file, if the runtime could not read it either."""
    assert sight.files is not None
    if "\0" in path:
        raise ValueError(f"{path!r} can be no file")
    notes: list[str] = []
    content = sight.files.content(path, notes)
    if content is None:
        raise ValueError(f"{path}: {'; '.join(notes) or 'it is not there'}")
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: it is nested too deeply") from None


def _table(document: object, *keys: str) -> dict[str, Any]:
    """The table at these keys; an empty one if there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
