"""The settings for CDI and for cgroups in the configuration of a container runtime.

The files are those that the running process was started with. They are merged in the same way as
the runtime does it, which was tried with containerd 1.7.35 and 2.2.9 and with CRI-O 1.34.0.
`runtime` judges the result.
"""

from __future__ import annotations

import fnmatch
import posixpath
import tomllib
from collections.abc import Iterator
from typing import Any

from .root_files import NotReadError, RootFiles
from .sight import Flags, Sight

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

# The most dots in a line. The time of Python's parser grows with the square of the parts of a key.
_MOST_DOTS = 256

# dockerd starts a containerd of its own, which serves no kubelet.
_DOCKER = ("/run/docker/", "/var/run/docker/")


# ---------------------------------------------------------------- containerd


def containerd(sight: Sight, files: RootFiles, *, replaces: bool) -> dict[str, Any]:
    """Returns fields of runtime.Facts for containerd.

    Raises NotReadError if a file must not be read, or if there are too many. `trouble` is set if
    containerd could not read the configuration either. `replaces` is True for containerd 1.7, in
    which an imported file replaces the whole table of a plugin. In later versions it replaces only
    the settings that it contains.
    """
    # A process that we cannot see has a file in one of the usual places.
    config = _containerd_file(sight)
    is_named = bool(config)
    if not config:
        for path in CONTAINERD_FILES:
            if not config and files.exists(path):
                config = path
    if not config:
        return {}

    # The settings of each plugin so far. A later file overrides an earlier one.
    facts: dict[str, Any] = {"config": config, "named": is_named}
    of_plugins: dict[str, dict[str, Any]] = {}
    try:
        for path, document in _with_imports(files, config):
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


def _with_imports(files: RootFiles, config: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a file and all its imports, each once, in the order in which they take effect."""
    waiting, loaded = [config], set()
    while waiting:
        path = waiting.pop(0)
        if path in loaded:
            continue
        loaded.add(path)
        document = _read_toml(files, path)
        yield path, document

        # The imports of an import take effect after all imports of the same file.
        waiting += _imported_files(files, path, document)


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


def _imported_files(files: RootFiles, path: str, document: dict[str, Any]) -> Iterator[str]:
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
            yield from _match_files(files, absolute)
        else:
            # containerd does not start if a file without a pattern is missing.
            yield absolute


def _match_files(files: RootFiles, pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted. Its folders may be patterns, too."""
    # The paths that match the pattern up to one of its parts lead to those of the next part.
    paths = [""]
    for part in pattern.strip("/").split("/"):
        longer = []
        for folder in paths:
            for name in fnmatch.filter(files.names(folder or "/"), part):
                longer.append(f"{folder}/{name}")
        paths = longer
    return paths


# ---------------------------------------------------------------- CRI-O


def has_crio(sight: Sight, files: RootFiles) -> bool:
    """Returns True if CRI-O runs on the node, or has its configuration there."""
    return files.exists(CRIO_FILE) or next(sight.flags_of("crio"), None) is not None


def crio(sight: Sight, files: RootFiles) -> dict[str, Any]:
    """Returns fields of runtime.Facts for CRI-O.

    Raises NotReadError if a file must not be read, or if there are too many. `trouble` is set if
    CRI-O could not read the configuration either.
    """
    flags = next(sight.flags_of("crio"), Flags(()))

    # CRI-O needs the file that a flag names, and no file if the name is empty. Only the default
    # file may be missing.
    config = flags.path("config", "c")
    paths = [config] if config else []
    if config is None:
        paths = [CRIO_FILE] if files.exists(CRIO_FILE) else []
    drop_ins = flags.path("config-dir", "d")
    paths += _files_below(files, CRIO_FOLDER if drop_ins is None else drop_ins)

    # A later file overrides an earlier one.
    facts: dict[str, Any] = {"systemd_cgroup": True, "config": paths[0] if paths else ""}
    facts["named"] = bool(config or drop_ins)
    for path in paths:
        try:
            of_runtime = _table(_read_toml(files, path), "crio", "runtime")
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


def _files_below(files: RootFiles, folder: str) -> list[str]:
    """Returns every file in a folder and in its subfolders, in the order of CRI-O's drop-ins.

    As in CRI-O, a link counts as a file, also one to a folder, which nobody can read as a file.
    """
    paths = []
    for name in files.names(folder) if folder else ():
        path = posixpath.join(folder, name)
        if files.is_folder(path):
            paths += _files_below(files, path)
        else:
            paths.append(path)
    return paths


# ---------------------------------------------------------------- both


def _read_toml(files: RootFiles, path: str) -> dict[str, Any]:
    """Reads a file.

    Raises ValueError with its name if the runtime could not read it either, and NotReadError if it
    must not be read.
    """
    if "\0" in path:
        raise ValueError(f"{path!r} can be no file")
    try:
        text = files.content(path).decode()
        if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
            raise NotReadError(f"{path} has a line with more than {_MOST_DOTS} dots")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ValueError(f"{path}: it is not there") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: it is nested too deeply") from None


def _table(document: object, *keys: str) -> dict[str, Any]:
    """Returns the table at these keys, or an empty one if there is no such table."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
