"""The settings for CDI and for cgroups in the configuration of a container runtime.

The files are those that the running process was started with. They are merged in the way of the
runtime, which was tried with containerd 1.7.35 and 2.2.9 and with CRI-O 1.34.0. `runtime` judges
the result.
"""

from __future__ import annotations

import fnmatch
import posixpath
import tomllib
from collections.abc import Iterator
from typing import Any

from claimd_devices import sysfs

from .sight import Flags, Sight, list_folder

# The places of containerd's configuration, by distribution, if its command line names no file.
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

# dockerd starts a containerd of its own, which serves no kubelet.
_DOCKER = ("/run/docker/", "/var/run/docker/")


# ---------------------------------------------------------------- containerd


def containerd(sight: Sight, *, replaces: bool) -> dict[str, Any]:
    """Returns fields of runtime.Facts for containerd.

    There is a `trouble` if containerd could not read the configuration either. `replaces` is True
    for containerd 1.7, in which an imported file replaces the whole table of a plugin. In later
    versions it replaces only the settings that it contains.
    """
    # A process that we cannot see has a file in one of the usual places.
    assert sight.files is not None
    config = _containerd_file(sight)
    if not config:
        for path in CONTAINERD_FILES:
            if not config and sight.files.real(path) is not None:
                config = path
    if not config:
        return {}

    # The settings of each plugin so far. A later file overrides an earlier one.
    facts: dict[str, Any] = {"config": config}
    of_plugins: dict[str, dict[str, Any]] = {}
    try:
        for path, document in _with_imports(sight, config):
            if path == config and document.get("version") == _NEWEST_VERSION:
                facts["table"] = CRI_PLUGINS[1]
            for plugin, cri in _table(document, "plugins").items():
                if plugin not in CRI_PLUGINS:
                    continue
                settings = of_plugins.get(plugin, {})
                if settings and replaces:
                    settings = {"replacing": path, "place": path, "table": plugin}
                of_plugins[plugin] = settings | _cri_settings(cri, plugin, path)
    except ValueError as error:
        return {"config": config, "trouble": str(error)}

    # The table of the newer version of the configuration overrides the older one.
    for plugin in CRI_PLUGINS:
        facts |= of_plugins.get(plugin, {})
    return facts


def _containerd_file(sight: Sight) -> str:
    """Returns the configuration file of the running containerd, as a path of the host, or ""."""
    for flags in sight.flags_of("containerd"):
        config = flags.path("config", "c")
        if config and not config.startswith(_DOCKER):
            return config
    return ""


def _with_imports(sight: Sight, config: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a file and all its imports, each once, in the order in which they take effect."""
    waiting, loaded = [config], set()
    while waiting:
        path = waiting.pop(0)
        if path in loaded:
            continue
        loaded.add(path)
        document = _read_toml(sight, path)
        yield path, document

        # The imports of an import take effect after all imports of the same file.
        waiting += _imported_files(sight, path, document)


def _cri_settings(cri: object, plugin: str, path: str) -> dict[str, Any]:
    """Returns the settings for containerd's CRI plugin in one file, as fields of runtime.Facts."""
    cri = _table(cri)
    settings: dict[str, Any] = {}
    if isinstance(cri.get("enable_cdi"), bool):
        settings |= {"enable_cdi": cri["enable_cdi"], "place": path, "table": plugin}
    if isinstance(cri.get("cdi_spec_dirs"), list):
        settings |= {"folders": tuple(map(str, cri["cdi_spec_dirs"])), "folders_place": path}

    # Each runtime has a setting of its own for cgroups. runc is the default runtime.
    runc = _table(cri, "containerd", "runtimes", "runc", "options")
    if isinstance(runc.get("SystemdCgroup"), bool):
        settings["systemd_cgroup"] = runc["SystemdCgroup"]
    return settings


def _imported_files(sight: Sight, path: str, document: dict[str, Any]) -> Iterator[str]:
    """Yields the imports of one file, in the order in which they take effect.

    Raises ValueError if `imports` is not a list.
    """
    patterns = document.get("imports", [])
    if not isinstance(patterns, list):
        seen = f"{patterns!r:.60}"
        raise ValueError(f"{path}: imports is no list of files, but {seen}")  # noqa: TRY004
    for pattern in patterns:
        absolute = posixpath.normpath(posixpath.join(posixpath.dirname(path), str(pattern)))
        if "*" in absolute:
            yield from _match_files(sight, absolute)
        else:
            # containerd does not start if a file without a pattern is missing.
            yield absolute


def _match_files(sight: Sight, pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted. Its folders may be patterns, too."""
    # The paths that match the pattern up to one of its parts lead to those of the next part.
    assert sight.files is not None
    paths = [""]
    for part in pattern.strip("/").split("/"):
        longer = []
        for folder in paths:
            for name in fnmatch.filter(list_folder(sight.files, folder or "/"), part):
                longer.append(f"{folder}/{name}")
        paths = longer
    return paths


# ---------------------------------------------------------------- CRI-O


def has_crio(sight: Sight) -> bool:
    """Returns True if CRI-O runs on the node, or has its configuration there."""
    assert sight.files is not None
    if sight.files.real(CRIO_FILE) is not None:
        return True
    return next(sight.flags_of("crio"), None) is not None


def crio(sight: Sight) -> dict[str, Any]:
    """Returns fields of runtime.Facts for CRI-O.

    There is a `trouble` if CRI-O could not read the configuration either.
    """
    flags = next(sight.flags_of("crio"), Flags(()))

    # CRI-O needs the file that a flag names, and no file if the name is empty. Only the default
    # file may be missing.
    config = flags.path("config", "c")
    files = [config] if config else []
    if config is None:
        assert sight.files is not None
        files = [CRIO_FILE] if sight.files.real(CRIO_FILE) is not None else []
    drop_ins = flags.path("config-dir", "d")
    files += _files_below(sight, CRIO_FOLDER if drop_ins is None else drop_ins)

    # A later file overrides an earlier one.
    facts: dict[str, Any] = {"systemd_cgroup": True, "config": files[0] if files else ""}
    for path in files:
        try:
            of_runtime = _table(_read_toml(sight, path), "crio", "runtime")
        except ValueError as error:
            return {"config": path, "trouble": str(error)}
        if isinstance(of_runtime.get("cdi_spec_dirs"), list):
            folders = tuple(map(str, of_runtime["cdi_spec_dirs"]))
            facts |= {"folders": folders, "folders_place": path}
        if isinstance(of_runtime.get("cgroup_manager"), str):
            facts["systemd_cgroup"] = of_runtime["cgroup_manager"] == "systemd"

    # Flags override files. The flag for the folders may be repeated, and each value is a list.
    lists = flags.values("cdi-spec-dirs")
    if lists:
        facts |= {"folders": tuple(",".join(lists).split(",")), "folders_place": FLAG}
    for cgroups in flags.values("cgroup-manager"):
        facts["systemd_cgroup"] = cgroups == "systemd"
    return facts


def _files_below(sight: Sight, folder: str) -> list[str]:
    """Returns every file in a folder and in its subfolders, in the order of CRI-O's drop-ins."""
    assert sight.files is not None
    files = []
    for name in list_folder(sight.files, folder) if folder else ():
        path = posixpath.join(folder, name)
        if sysfs.is_folder(f"{sight.files.host}{sight.files.real(path)}"):
            files += _files_below(sight, path)
        else:
            files.append(path)
    return files


# ---------------------------------------------------------------- both


def _read_toml(sight: Sight, path: str) -> dict[str, Any]:
    """Reads a file. Raises ValueError with its name if the runtime could not read it either."""
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
    """Returns the table at these keys, or an empty one if there is no such table."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
